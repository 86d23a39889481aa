//! When a program's first runs are over.

/// Runs that must agree.
const LAST: usize = 3;
/// How far the slowest of them may be above the fastest.
const WITHIN: f64 = 1.2;
/// After so many runs a program is taken as it is.
const MOST: usize = 6;

/// Whether a program runs as it will go on running: its last runs agree, none of them the fastest by far, or there were
/// enough of them.
pub fn is_stationary(runs_ns: &[u64]) -> bool {
    if runs_ns.len() >= MOST {
        return true;
    }
    let Some(last) = runs_ns.len().checked_sub(LAST).and_then(|from| runs_ns.get(from..)) else { return false };
    let fastest = last.iter().copied().min().unwrap_or(0) as f64;
    last.iter().all(|&ns| ns as f64 <= fastest * WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_runs_are_left_behind_and_nothing_lasts_for_ever() {
        assert!(!is_stationary(&[]) && !is_stationary(&[5, 5]));
        assert!(!is_stationary(&[90, 10, 10]) && is_stationary(&[90, 10, 10, 11]));
        assert!(!is_stationary(&[100, 90, 70]), "it still gets faster");
        assert!(!is_stationary(&[10, 100, 10, 100, 10]) && is_stationary(&[10, 100, 10, 100, 10, 100]));
        assert!(is_stationary(&[0, 0, 0]));
    }
}
