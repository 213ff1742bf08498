//! What the demonstration prints.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use super::{Arm, DemoReport};

/// Prints the state of a demonstration as it goes.
pub(super) struct Live<'a> {
    out: &'a mut dyn Write,
    terminal: bool,
    /// Lines of the table on screen, to be overwritten by the next one.
    drawn: usize,
}

impl<'a> Live<'a> {
    /// `terminal`: the table may be redrawn in place.
    pub fn new(out: &'a mut dyn Write, terminal: bool) -> Self {
        Self { out, terminal, drawn: 0 }
    }

    pub fn show(&mut self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// About once a second: the policies that are done, and the one under way.
    pub fn tick(&mut self, done: &[Arm], current: &Arm, elapsed: Duration, warming_up: bool) {
        let state = if warming_up { "warming up" } else { "measuring" };
        if self.terminal {
            let mut table = heading();
            done.iter().for_each(|arm| table.push_str(&row(arm, "done")));
            table.push_str(&row(current, &format!("{state}, {} s", elapsed.as_secs())));
            self.redraw(&table);
        } else {
            self.print(&format!(
                "{:>3} s  {:<12} {state:<10}  {:>5} answered  {:>5.1} % cached  TTFT p50 {:>7} \
                 p99 {:>7}\n",
                elapsed.as_secs(),
                current.policy,
                current.answered,
                100.0 * current.hit_share,
                milliseconds(current.ttft_ms.p50),
                milliseconds(current.ttft_ms.p99),
            ));
        }
    }

    /// Replaces the live table by the final one.
    pub fn finish(&mut self, report: &DemoReport) {
        if self.terminal {
            self.redraw("");
        } else {
            self.print("\n");
        }
        self.print(&summary(report));
    }

    fn redraw(&mut self, table: &str) {
        let mut text = String::new();
        if self.drawn > 0 {
            // Up to the first line of the last table, then clear to the end of the screen.
            let _ = write!(text, "\x1b[{}A\x1b[J", self.drawn);
        }
        text.push_str(table);
        self.drawn = table.lines().count();
        self.print(&text);
    }

    fn print(&mut self, text: &str) {
        // Nobody reading any more is no reason to fail.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.flush();
    }
}

/// The final table, one column per policy, and the gain in words.
pub(super) fn summary(report: &DemoReport) -> String {
    let arms = &report.arms;
    let mut text = String::new();
    let mut line = |label: &str, value: &dyn Fn(&Arm) -> String| {
        let _ = write!(text, "{label:<38}");
        for arm in arms {
            let _ = write!(text, "{:>20}", value(arm));
        }
        text.push('\n');
    };
    line("", &|arm| arm.policy.clone());
    line("prompt tokens found in engine caches", &|arm| format!("{:.1} %", 100.0 * arm.hit_share));
    line("time to first token, half within", &|arm| milliseconds(arm.ttft_ms.p50));
    line("                     99 % within", &|arm| milliseconds(arm.ttft_ms.p99));
    line("whole answer, half within", &|arm| milliseconds(arm.whole_answer_ms.p50));
    line("              99 % within", &|arm| milliseconds(arm.whole_answer_ms.p99));
    line("requests answered", &|arm| arm.answered.to_string());
    line("requests failed", &|arm| arm.failed.to_string());
    line("requests per engine, %", &|arm| percentages(&arm.shares));
    if let [first, .., last] = &arms[..] {
        text.push('\n');
        text.push_str(&gain(first, last));
    }
    text
}

/// What changed from one policy to the other, in a sentence.
fn gain(from: &Arm, to: &Arm) -> String {
    let computed = |arm: &Arm| arm.prompt_tokens.saturating_sub(arm.cached_tokens) as f64;
    let work = |arm: &Arm| computed(arm) / arm.prompt_tokens.max(1) as f64;
    if to.answered == 0 || from.answered == 0 || work(to) <= 0.0 || to.ttft_ms.p50 <= 0.0 {
        return String::from("Too few requests were answered to compare.\n");
    }
    let faster = from.ttft_ms.p50 / to.ttft_ms.p50;
    let speed = if (0.95..1.05).contains(&faster) {
        String::from("typical answers start as soon")
    } else if faster > 1.0 {
        format!("typical answers start {faster:.1} times sooner")
    } else {
        format!("typical answers start {:.1} times later", 1.0 / faster)
    };
    let ratio = work(from) / work(to);
    let saved = if (0.95..1.05).contains(&ratio) {
        String::from("the engines compute as many prompt tokens")
    } else if ratio > 1.0 {
        format!("the engines compute {ratio:.1} times fewer prompt tokens")
    } else {
        format!("the engines compute {:.1} times more prompt tokens", 1.0 / ratio)
    };
    format!("With {} instead of {}, {speed}, and {saved}.\n", to.policy, from.policy)
}

fn heading() -> String {
    format!(
        "{:<13}{:>9}{:>10}{:>12}{:>12}   {:<20}{}\n",
        "policy", "answered", "cached", "TTFT p50", "TTFT p99", "% per engine", "state"
    )
}

fn row(arm: &Arm, state: &str) -> String {
    format!(
        "{:<13}{:>9}{:>8.1} %{:>12}{:>12}   {:<20}{state}\n",
        arm.policy,
        arm.answered,
        100.0 * arm.hit_share,
        milliseconds(arm.ttft_ms.p50),
        milliseconds(arm.ttft_ms.p99),
        percentages(&arm.shares),
    )
}

fn milliseconds(ms: f64) -> String {
    if ms == 0.0 { "-".into() } else { format!("{ms:.0} ms") }
}

/// At most eight shares are spelled out.
fn percentages(shares: &[f64]) -> String {
    if shares.len() > 8 {
        let of =
            |pick: fn(f64, f64) -> f64, start| 100.0 * shares.iter().copied().fold(start, pick);
        return format!("{:.1} to {:.1}", of(f64::min, 1.0), of(f64::max, 0.0));
    }
    let parts: Vec<_> = shares.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Quantiles;

    fn arm(policy: &str, hit_share: f64, ttft_p50: f64) -> Arm {
        Arm {
            policy: policy.into(),
            answered: 100,
            failed: 0,
            hit_share,
            prompt_tokens: 1_000,
            cached_tokens: (1_000.0 * hit_share) as u64,
            ttft_ms: Quantiles { p50: ttft_p50, p99: 900.0, ..Quantiles::default() },
            whole_answer_ms: Quantiles { p50: 700.0, p99: 1_500.0, ..Quantiles::default() },
            shares: vec![0.25, 0.25, 0.3, 0.2],
        }
    }

    #[test]
    fn the_summary_says_what_changed() {
        let arms = vec![arm("round_robin", 0.4, 160.0), arm("cache_aware", 0.9, 32.0)];
        let text = summary(&DemoReport { engines: 4, system_prompts: 24, arms });
        assert!(text.contains("40.0 %") && text.contains("90.0 %"), "{text}");
        assert!(text.contains("25 25 30 20"), "{text}");
        // 600 of 1,000 tokens computed against 100; 160 ms against 32 ms.
        assert!(text.contains("6.0 times fewer prompt tokens"), "{text}");
        assert!(text.contains("start 5.0 times sooner"), "{text}");
    }

    #[test]
    fn a_loss_is_called_one() {
        let arms = vec![arm("cache_aware", 0.9, 32.0), arm("random", 0.4, 160.0)];
        let text = summary(&DemoReport { engines: 4, system_prompts: 24, arms });
        assert!(text.contains("5.0 times later") && text.contains("6.0 times more"), "{text}");
    }

    #[test]
    fn many_engines_are_summed_up() {
        assert_eq!(percentages(&[0.5, 0.5]), "50 50");
        let mut shares = vec![0.1; 9];
        shares[3] = 0.2;
        assert_eq!(percentages(&shares), "10.0 to 20.0");
    }
}
