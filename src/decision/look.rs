//! What the first rounds tell of each candidate: enough to guess at others, too little to decide.

use super::noise::Noise;
use super::paired::{Round, log_ratios};
use super::race::counted;
use super::sentinel::disturbance;
use crate::stats::median;

/// One round's difference scatters by this at least: two rounds that agree by chance are no proof of a quiet machine.
const LEAST_DEVIATION: f64 = 0.02;

/// A candidate's time over the baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Look {
    /// Its logarithm.
    pub difference: f64,
    /// Standard deviation of that.
    pub deviation: f64,
}

/// What is known of each candidate; `None` where it has no usable time beside the baseline's.
pub fn first_looks(rounds: &[Round], candidates: usize, baseline: usize) -> Vec<Option<Look>> {
    let counted = counted(rounds, &disturbance(rounds), baseline);
    let all: Vec<usize> = (0..candidates).collect();
    let of_one_round = Noise::of(&counted, &all, baseline).deviation().max(LEAST_DEVIATION);
    let look = |candidate: usize| {
        let differences = log_ratios(counted.iter().copied(), candidate, baseline);
        let deviation = of_one_round / (differences.len().max(1) as f64).sqrt();
        Some(Look { difference: median(&differences)?, deviation })
    };
    all.iter().map(|&candidate| look(candidate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_the_median_ratio_and_more_rounds_make_it_surer() {
        let round = |times: [Option<f64>; 3]| Round { samples_ns: times.to_vec(), ..Round::default() };
        let rounds = [
            round([Some(100.0), Some(50.0), None]),
            round([Some(200.0), Some(100.0), None]),
            round([Some(100.0), Some(50.0), Some(400.0)]),
            round([Some(100.0), Some(50.0), None]),
        ];
        let looks = first_looks(&rounds, 3, 0);
        let (second, third) = (looks[1].unwrap(), looks[2].unwrap());
        assert!((second.difference - 0.5_f64.ln()).abs() < 1e-12 && (third.difference - 4.0_f64.ln()).abs() < 1e-12);
        assert!((third.deviation - 2.0 * second.deviation).abs() < 1e-12, "four rounds, and one");
        assert_eq!(first_looks(&rounds[..2], 3, 0)[2], None);
    }
}
