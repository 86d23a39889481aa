//! What the first rounds say about each candidate: enough to predict others, too little to decide.

use super::noise::RoundNoise;
use super::paired::{Round, log_ratios};
use super::race::counted;
use super::sentinel::disturbance;
use crate::stats::median;

/// One round's difference scatters by this at least: two rounds that agree by chance are not proof of a quiet machine.
const LEAST_DEVIATION: f64 = 0.02;

/// A candidate's time over the baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RatioLook {
    /// Its logarithm.
    pub difference: f64,
    /// Its standard deviation.
    pub deviation: f64,
}

/// What is known about all candidates.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Looks {
    /// One per candidate; `None` if it has no usable time beside the baseline's.
    pub candidates: Vec<Option<RatioLook>>,
    /// The least relative difference that as many rounds as usual would distinguish: 0.01 where times have to differ by
    /// a factor of 1.01.
    pub noise_floor: f64,
}

/// Looks at the rounds, which may be few. `usual` is the usual number of rounds.
pub fn first_looks(rounds: &[Round], candidates: usize, baseline: usize, usual: usize) -> Looks {
    let counted = counted(rounds, &disturbance(rounds), baseline);
    let all: Vec<usize> = (0..candidates).collect();
    let noise = RoundNoise::of(&counted, &all, baseline);
    let of_one_round = noise.deviation().max(LEAST_DEVIATION);
    let look = |candidate: usize| {
        let differences = log_ratios(counted.iter().copied(), candidate, baseline);
        let deviation = of_one_round / (differences.len().max(1) as f64).sqrt();
        Some(RatioLook { difference: median(&differences)?, deviation })
    };
    Looks {
        candidates: all.iter().map(|&candidate| look(candidate)).collect(),
        noise_floor: noise.half_width(usual).exp_m1(),
    }
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
        let found = first_looks(&rounds, 3, 0, 16);
        let looks = found.candidates;
        let (second, third) = (looks[1].unwrap(), looks[2].unwrap());
        assert!((second.difference - 0.5_f64.ln()).abs() < 1e-12 && (third.difference - 4.0_f64.ln()).abs() < 1e-12);
        assert!((third.deviation - 2.0 * second.deviation).abs() < 1e-12, "four rounds, and one");
        assert_eq!(first_looks(&rounds[..2], 3, 0, 16).candidates[2], None);
        assert_eq!(found.noise_floor, 0.0, "every round gave the same ratios");
    }

    #[test]
    fn the_noise_floor_is_what_the_usual_rounds_would_tell() {
        // differences go up and down by a tenth
        let round = |at: usize| Round {
            samples_ns: vec![Some(100.0), Some(100.0 * (0.1 * (at % 2) as f64).exp())],
            ..Round::default()
        };
        let rounds: Vec<Round> = (0..4).map(round).collect();
        // 1.4826 / √2 of a tenth is one round's deviation; 2.576 √(π/2) / √16 of that is half of the interval
        let expected = (0.1 * 1.4826 / 2.0_f64.sqrt() * 2.576 * (std::f64::consts::PI / 2.0).sqrt() / 4.0).exp_m1();
        let found = first_looks(&rounds, 2, 0, 16).noise_floor;
        assert!((found - expected).abs() < 1e-3, "{found} {expected}");
    }
}
