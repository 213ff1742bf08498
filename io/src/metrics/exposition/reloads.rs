//! What was read again on SIGHUP.

use super::{Family, Text};
use crate::reload::Subject;
use crate::shared::Shared;

/// Writes the family.
pub fn write(text: &mut Text, shared: &Shared) {
    let name = "smg_reloads_total";
    text.family(name, Family::Counter, "What SIGHUP had read again, by outcome.");
    for subject in Subject::ALL {
        for (result, succeeded) in [("success", true), ("failure", false)] {
            let count = shared.reloads.get(subject, succeeded);
            text.sample(name, &[("what", subject.label()), ("result", result)], count as f64);
        }
    }
}
