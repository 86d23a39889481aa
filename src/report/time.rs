//! Where the time of a run went, in one line.

use crate::tune::Spent;

use super::format_ns;

/// `12.3 s: compiling 8.10 s (15.0 s of processor time), measuring 2.90 s (1.20 s in the programs), …`, the largest part
/// first and what is below a hundredth left out; `None` where nothing was done.
pub fn time_line(spent: &Spent) -> Option<String> {
    let total = spent.total().as_nanos() as f64;
    let beside =
        |ns: u64, what: &str| if ns > 0 { format!(" ({} {what})", format_ns(ns as f64)) } else { String::new() };
    let mut parts = vec![
        ("compiling", spent.compile_ns, beside(spent.compile_cpu_ns, "of processor time")),
        ("measuring", spent.measuring_ns, beside(spent.running_ns, "in the programs")),
        ("searching", spent.searching_ns, String::new()),
        ("warming up", spent.warm_up_ns, String::new()),
        ("comparing outputs", spent.checking_ns, String::new()),
        ("inputs", spent.inputs_ns, String::new()),
        ("restarting workers", spent.waiting_ns, String::new()),
    ];
    parts.retain(|(_, ns, _)| *ns as f64 >= total / 100.0 && *ns > 0);
    parts.sort_by_key(|(_, ns, _)| std::cmp::Reverse(*ns));
    let parts: Vec<String> =
        parts.iter().map(|(what, ns, beside)| format!("{what} {}{beside}", format_ns(*ns as f64))).collect();
    (!parts.is_empty()).then(|| format!("{}: {}", format_ns(total), parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_comes_first_and_the_smallest_not_at_all() {
        let spent = Spent {
            compile_ns: 1_000_000_000,
            compile_cpu_ns: 1_500_000_000,
            measuring_ns: 3_000_000_000,
            running_ns: 2_000_000_000,
            searching_ns: 2_000_000_000,
            inputs_ns: 1_000_000,
            ..Spent::default()
        };
        let line = "6.00 s: measuring 3.00 s (2.00 s in the programs), searching 2.00 s, compiling 1.00 s (1.50 s of processor time)";
        assert_eq!(time_line(&spent).as_deref(), Some(line));
        assert_eq!(time_line(&Spent::default()), None);
    }
}
