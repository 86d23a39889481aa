//! This machine's `selftest` figures, in one line.

use crate::selftest::KnownNoise;

use super::{format_ns, format_part};

/// Returns the noise floor here, or why the existing figures do not apply; `None` if there are no figures.
pub fn resolution_note(known: &KnownNoise) -> Option<String> {
    let point = |&(ns, part): &(f64, f64)| format!("{} at {}", format_part(part), format_ns(ns));
    let points: Vec<String> = known.resolution.points().iter().map(point).collect();
    if !points.is_empty() {
        return Some(format!("noise floor here, by `selftest`: {}", points.join(", ")));
    }
    known.is_of_others.then(|| {
        "the figures of `selftest` belong to another device, software, timer, metric or cache state and are not used"
            .to_owned()
    })
}
