//! When a program is warmed up.

/// Runs that must agree.
const LAST: usize = 3;
/// Runs that must agree if the program already ran, untimed.
const LAST_OF_MORE: usize = 2;
/// How far the slowest of them may be above the fastest.
const WITHIN: f64 = 1.2;
/// After this many runs a program counts as warm.
const MOST: usize = 6;

/// Whether a program has reached its steady state: its last runs agree, none of them the fastest by far, or there were
/// enough of them. If its outputs were taken before, its first run is already over.
pub fn is_stationary(runs_ns: &[u64], ran_before: bool) -> bool {
    if runs_ns.len() >= MOST {
        return true;
    }
    let needed = if ran_before { LAST_OF_MORE } else { LAST };
    let Some(last) = runs_ns.len().checked_sub(needed).and_then(|from| runs_ns.get(from..)) else { return false };
    let fastest = last.iter().copied().min().unwrap_or(0) as f64;
    last.iter().all(|&ns| ns as f64 <= fastest * WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_runs_are_left_behind_and_nothing_lasts_for_ever() {
        let is_warm = |runs_ns: &[u64]| is_stationary(runs_ns, false);
        assert!(!is_warm(&[]) && !is_warm(&[5, 5]));
        assert!(!is_warm(&[90, 10, 10]) && is_warm(&[90, 10, 10, 11]));
        assert!(!is_warm(&[100, 90, 70]), "it still gets faster");
        assert!(!is_warm(&[10, 100, 10, 100, 10]) && is_warm(&[10, 100, 10, 100, 10, 100]));
        assert!(is_warm(&[0, 0, 0]));
    }

    #[test]
    fn a_run_that_was_not_timed_counts() {
        let is_warm = |runs_ns: &[u64]| is_stationary(runs_ns, true);
        assert!(!is_warm(&[10]) && is_warm(&[10, 11]));
        assert!(!is_warm(&[90, 10]) && is_warm(&[90, 10, 11]));
        assert!(!is_warm(&[100, 70, 50]), "it still gets faster");
    }
}
