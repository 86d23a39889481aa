//! What is asked of a timer in one round, and what it answers: samples, a profile, outputs.

use super::answers::OutputArray;
use super::profiled::ProfiledRound;
use super::protocol::{ComparedOutput, KeptOutput, MAX_RUNS};
use crate::array::Tolerance;
use crate::failure::{Failure, FailureKind};

/// Samples of one candidate: each is the mean of consecutive runs, for candidates too fast for the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CandidateRuns {
    /// Index of the candidate.
    pub candidate: usize,
    /// Number of samples.
    pub samples: u32,
    /// Number of runs of each; a timer that cannot time several runs together takes the mean of single ones.
    pub batch: u32,
}

impl CandidateRuns {
    /// Samples of one run each.
    pub fn new(candidate: usize, samples: u32) -> Self {
        Self { candidate, samples, batch: 1 }
    }
}

/// What a timer measures in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundRequest {
    /// The candidates, in the order in which they run.
    pub launches: Vec<CandidateRuns>,
    /// Whether the profile is wanted, too.
    pub with_profile: bool,
}

impl RoundRequest {
    /// Several candidates, without a profile.
    pub fn new(launches: Vec<CandidateRuns>) -> Self {
        Self { launches, with_profile: false }
    }

    /// The samples of a timer that takes no profiles and times each run by itself, one candidate after the other.
    ///
    /// # Errors
    /// That of a run, or if too many runs or a profile are asked for.
    pub fn one_by_one(
        &self,
        mut run: impl FnMut(usize, u32) -> Result<Vec<u64>, Failure>,
    ) -> Result<RoundSamples, Failure> {
        if self.with_profile {
            return Err(Failure::new(FailureKind::Device, "the timer takes no profiles"));
        }
        let samples = |of: &CandidateRuns| {
            let durations = run(of.candidate, runs_of_batches(of.samples, of.batch)?)?;
            Ok(means(&durations, of.batch))
        };
        self.launches.iter().map(samples).collect::<Result<_, _>>().map(RoundSamples::new)
    }
}

/// The samples of a round.
#[derive(Debug, Default)]
pub struct RoundSamples {
    /// Durations in nanoseconds, by launch.
    pub durations_ns: Vec<Vec<u64>>,
    /// Everything that the profile says about the launches, if it was asked for.
    pub profile: Option<ProfiledRound>,
}

impl RoundSamples {
    /// Those of launches, without a profile.
    pub fn new(durations_ns: Vec<Vec<u64>>) -> Self {
        Self { durations_ns, profile: None }
    }
}

/// How the outputs of a run are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OutputsAs<'a> {
    /// As files.
    Files,
    /// In place, if they take more than this many bytes together and the timer can keep them; else as files.
    KeptAbove(u64),
    /// By comparing them with the kept ones, each within its tolerance.
    Compared(&'a [Tolerance]),
}

/// The outputs of a run.
#[derive(Debug, Clone)]
pub enum TakenOutputs {
    /// As files.
    Files(Vec<OutputArray>),
    /// In place, to compare others with them.
    Kept(Vec<KeptOutput>),
    /// Compared with the kept ones.
    Compared(Vec<ComparedOutput>),
}

impl TakenOutputs {
    /// The files.
    ///
    /// # Errors
    /// If the timer answered otherwise.
    pub fn into_files(self) -> Result<Vec<OutputArray>, Failure> {
        match self {
            Self::Files(files) => Ok(files),
            _ => Err(Failure::new(FailureKind::Protocol, "the timer answered with other outputs than files")),
        }
    }

    /// What differs from the kept ones.
    ///
    /// # Errors
    /// If the timer answered otherwise.
    pub fn into_compared(self) -> Result<Vec<ComparedOutput>, Failure> {
        match self {
            Self::Compared(compared) => Ok(compared),
            _ => Err(Failure::new(FailureKind::Protocol, "the timer keeps no outputs to compare with")),
        }
    }
}

/// How often a candidate runs for this many batches, if allowed.
pub(crate) fn runs_of_batches(samples: u32, batch: u32) -> Result<u32, Failure> {
    let runs = samples.checked_mul(batch).filter(|&runs| batch > 0 && runs <= MAX_RUNS);
    runs.ok_or_else(|| {
        let message = format!("{samples} batches of {batch} runs: 1 to {MAX_RUNS} runs in all can be asked for");
        Failure::new(FailureKind::Protocol, message)
    })
}

/// The mean of each `batch` durations, rounded.
pub(crate) fn means(durations: &[u64], batch: u32) -> Vec<u64> {
    let count = batch.max(1);
    let mean = |chunk: &[u64]| {
        let sum: u128 = chunk.iter().copied().map(u128::from).sum();
        let count = chunk.len() as u128;
        u64::try_from((sum + count / 2) / count).unwrap_or(u64::MAX)
    };
    durations.chunks(count as usize).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_give_their_means() {
        assert_eq!(runs_of_batches(20, 500).unwrap(), MAX_RUNS);
        for (samples, batch) in [(20, 501), (1, 0), (u32::MAX, 2)] {
            assert!(runs_of_batches(samples, batch).unwrap_err().message.contains("1 to 10000 runs"));
        }
        assert_eq!(means(&[10, 20, 31, 40, u64::MAX, u64::MAX], 2), [15, 36, u64::MAX]);
        assert_eq!(means(&[7, 8], 1), [7, 8]);
    }
}
