//! Date and time of a log line.

use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in UTC.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    secs: u64,
    micros: u32,
}

/// The wall clock.
#[allow(
    clippy::disallowed_methods,
    reason = "a log line carries the wall time; nothing is measured with it"
)]
pub fn now() -> Moment {
    // A clock before 1970 shows as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { secs: since.as_secs(), micros: since.subsec_micros() }
}

impl Moment {
    /// `2026-11-29 20:28:07`
    pub fn to_seconds(self) -> impl Display {
        Shown { moment: self, separator: ' ', micros: false }
    }

    /// `2026-11-29T20:28:07.000042Z` (RFC 3339)
    pub fn to_micros(self) -> impl Display {
        Shown { moment: self, separator: 'T', micros: true }
    }

    /// Year, month and day in the Gregorian calendar.
    ///
    /// Counts from 0000-03-01, so that a leap day ends its year and months have a fixed pattern
    /// (153 days per five months); 719,468 days lie between that date and 1970-01-01, and 146,097
    /// days make 400 years.
    fn date(self) -> (u64, u64, u64) {
        let days = self.secs / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        (era * 400 + year_of_era + u64::from(month <= 2), month, day)
    }
}

struct Shown {
    moment: Moment,
    separator: char,
    micros: bool,
}

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.moment.date();
        let second = self.moment.secs % 86_400;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let separator = self.separator;
        write!(f, "{year:04}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}:{second:02}")?;
        if self.micros { write!(f, ".{:06}Z", self.moment.micros) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(secs: u64) -> String {
        Moment { secs, micros: 0 }.to_seconds().to_string()
    }

    // Expected values from `date -u -d @N`.
    #[test]
    fn dates_of_known_moments() {
        assert_eq!(seconds(0), "1970-01-01 00:00:00");
        assert_eq!(seconds(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(seconds(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(seconds(951_868_800), "2000-03-01 00:00:00");
        assert_eq!(seconds(1_735_689_599), "2024-12-31 23:59:59");
        assert_eq!(seconds(1_796_000_000), "2026-11-30 00:53:20");
        assert_eq!(seconds(4_107_542_400), "2100-03-01 00:00:00");
    }

    #[test]
    fn the_long_form_has_microseconds() {
        let moment = Moment { secs: 1_735_689_599, micros: 42 };
        assert_eq!(moment.to_micros().to_string(), "2024-12-31T23:59:59.000042Z");
    }

    #[test]
    fn consecutive_days_follow_each_other() {
        // A simpler model: count days with month lengths, over 800 years.
        let leap =
            |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..292_194 {
            let moment = Moment { secs: days * 86_400, micros: 0 };
            assert_eq!(moment.date(), (year, month, day));
            let length = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
