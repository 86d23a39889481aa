//! The time breakdown of a run, in one line.

use crate::tune::TimeBreakdown;

use super::format_ns;

/// A part of the work.
pub(super) struct TimePart {
    /// Its name.
    pub(super) what: &'static str,
    /// Its wall time.
    pub(super) ns: u64,
    /// Additional text: ` (15.0 s of processor time)`, or empty.
    pub(super) beside: String,
}

/// Returns every part of the work, in the order of the walk.
pub(super) fn parts(time_breakdown: &TimeBreakdown) -> [TimePart; 8] {
    let beside =
        |ns: u64, what: &str| if ns > 0 { format!(" ({} {what})", format_ns(ns as f64)) } else { String::new() };
    let part = |what, ns, beside| TimePart { what, ns, beside };
    [
        part("inputs", time_breakdown.inputs_ns, String::new()),
        part("compiling", time_breakdown.compile_ns, beside(time_breakdown.compile_cpu_ns, "of processor time")),
        part("comparing outputs", time_breakdown.checking_ns, String::new()),
        part("warming up", time_breakdown.warm_up_ns, String::new()),
        part("searching", time_breakdown.searching_ns, String::new()),
        part("measuring", time_breakdown.measuring_ns, beside(time_breakdown.running_ns, "in the programs")),
        part("confirming", time_breakdown.confirming_ns, String::new()),
        part("restarting workers", time_breakdown.waiting_ns, String::new()),
    ]
}

/// Returns `12.3 s: compiling 8.10 s (15.0 s of processor time), measuring 2.90 s (1.20 s in the programs), …`, the
/// largest part first, without those below one per cent; `None` if nothing was done.
pub(super) fn time_line(of: impl IntoIterator<Item = TimeBreakdown>) -> Option<String> {
    let mut time_breakdown = TimeBreakdown::default();
    of.into_iter().for_each(|part| time_breakdown += part);
    let total = time_breakdown.total().as_nanos() as f64;
    let mut parts = Vec::from(parts(&time_breakdown));
    parts.retain(|part| part.ns as f64 >= total / 100.0 && part.ns > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    let parts: Vec<String> =
        parts.iter().map(|part| format!("{} {}{}", part.what, format_ns(part.ns as f64), part.beside)).collect();
    (!parts.is_empty()).then(|| format!("{}: {}", format_ns(total), parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_comes_first_and_the_smallest_not_at_all() {
        let time_breakdown = TimeBreakdown {
            compile_ns: 1_000_000_000,
            compile_cpu_ns: 1_500_000_000,
            measuring_ns: 3_000_000_000,
            running_ns: 2_000_000_000,
            searching_ns: 2_000_000_000,
            inputs_ns: 1_000_000,
            ..TimeBreakdown::default()
        };
        let line = "6.00 s: measuring 3.00 s (2.00 s in the programs), searching 2.00 s, compiling 1.00 s (1.50 s of \
                    processor time)";
        assert_eq!(time_line([time_breakdown]).as_deref(), Some(line));
        assert_eq!(time_line([]), None);
    }
}
