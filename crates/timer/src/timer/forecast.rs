//! Predicts the cost of compiling programs from earlier compilations.

use serde::{Deserialize, Serialize};

/// The predicted cost of compiling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forecast {
    /// Programs without a stored result.
    pub to_compile: usize,
    /// Programs whose executable, or refusal, is stored.
    pub kept: usize,
    /// How many are compiled at once.
    pub jobs: usize,
    /// Wall time of all of them, seconds, by the mean of the device's stored compilations; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Their size in the store of executables, by the same mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Forecast {
    /// From the seconds and bytes of each known program.
    pub(super) fn by(known: &[(f64, u64)], to_compile: usize, kept: usize, jobs: usize) -> Self {
        let mean = |sum: f64| (!known.is_empty()).then(|| sum / known.len() as f64);
        // the last turn may not use all cores
        let turns = to_compile.div_ceil(jobs.max(1)) as f64;
        let seconds = mean(known.iter().map(|(seconds, _)| seconds).sum());
        let bytes = mean(known.iter().map(|(_, bytes)| *bytes as f64).sum());
        Self {
            to_compile,
            kept,
            jobs,
            seconds: seconds.map(|seconds| seconds * turns),
            bytes: bytes.map(|bytes| (bytes * to_compile as f64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_no_program_is_not_guessed() {
        let forecast = Forecast::by(&[], 5, 1, 2);
        assert_eq!((forecast.to_compile, forecast.kept, forecast.seconds, forecast.bytes), (5, 1, None, None));
        // five programs of two seconds each, two at once: three turns
        let forecast = Forecast::by(&[(1.0, 10), (3.0, 30)], 5, 1, 2);
        assert_eq!((forecast.seconds, forecast.bytes), (Some(6.0), Some(100)));
        assert_eq!(Forecast::by(&[(1.0, 10)], 0, 6, 2).seconds, Some(0.0));
    }
}
