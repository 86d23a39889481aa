//! The clocks of a GPU during the measurement, over all reports of its worker.

use std::collections::BTreeSet;

use super::protocol::{RunningClocks, one_line};
use crate::measured_by::Clocks;

/// Maximum number of reasons, and of characters in each, because workers may report anything.
const MAX_REASONS: usize = 8;
const MAX_REASON: usize = 60;

/// The lowest and the highest clock, and everything that limited it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenClocks {
    range: Option<(u32, u32)>,
    held_by: BTreeSet<String>,
}

impl SeenClocks {
    /// Adds one report.
    pub(crate) fn take(&mut self, seen: Option<RunningClocks>) {
        let Some(RunningClocks { sm_mhz, held_by, .. }) = seen else { return };
        let (low, high) = self.range.unwrap_or((sm_mhz, sm_mhz));
        self.range = Some((low.min(sm_mhz), high.max(sm_mhz)));
        for reason in held_by.iter().take(MAX_REASONS) {
            if self.held_by.len() < MAX_REASONS {
                self.held_by.insert(one_line(reason, MAX_REASON));
            }
        }
    }

    /// One line for people.
    pub(crate) fn note(&self, may: Option<Clocks>) -> Option<String> {
        let (low, high) = self.range?;
        let range = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let most = may.map_or_else(String::new, |clocks| format!(" of {}", clocks.max_sm_mhz));
        let held: Vec<&str> = self.held_by.iter().map(String::as_str).collect();
        let held = if held.is_empty() { String::new() } else { format!("; held back by {}", held.join(", ")) };
        Some(format!("the GPU ran at {range}{most} MHz when it was measured{held}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_has_the_range_and_few_reasons() {
        let mut seen = SeenClocks::default();
        assert_eq!(seen.note(None), None);
        let at_clock = |sm_mhz, held_by: &[&str]| {
            Some(RunningClocks {
                sm_mhz,
                held_by: held_by.iter().map(|&reason| reason.to_owned()).collect(),
                others_percent: None,
            })
        };
        seen.take(None);
        seen.take(at_clock(1410, &[]));
        assert_eq!(seen.note(None).unwrap(), "the GPU ran at 1410 MHz when it was measured");
        seen.take(at_clock(1980, &["the power limit"]));
        seen.take(at_clock(1200, &["heat", "the power limit"]));
        let may = Clocks { sm_mhz: 1980, memory_mhz: 2619, max_sm_mhz: 1980, max_memory_mhz: 2619 };
        let expected =
            "the GPU ran at 1200 to 1980 of 1980 MHz when it was measured; held back by heat, the power limit";
        assert_eq!(seen.note(Some(may)).unwrap(), expected);
        let many: Vec<String> = (0..1000).map(|number| format!("{number}\n{}", "x".repeat(1000))).collect();
        seen.take(Some(RunningClocks { sm_mhz: 1, held_by: many, others_percent: None }));
        let note = seen.note(None).unwrap();
        assert!(note.len() < 900 && !note.contains('\n'), "{note}");
    }
}
