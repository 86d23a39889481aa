//! How long to wait for a call that runs candidates.

use std::time::Duration;

use super::job::Job;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::CacheState;

/// Time for a call besides its runs.
const GRACE: Duration = Duration::from_secs(2);
/// The same for a call that starts and ends a profile.
const PROFILE_GRACE: Duration = Duration::from_secs(10);
/// The same for a call that writes outputs, which may be large, until one has shown what it takes.
const OUTPUTS_GRACE: Duration = Duration::from_secs(30);
/// Afterwards it is so many times what the longest one took,
const TIMES_OUTPUTS: u32 = 4;
/// and at least this, because the machine may be busy.
const LEAST_OUTPUTS_GRACE: Duration = Duration::from_secs(5);
/// Maximum time for flushing the caches before a run: a gibibyte through a slow core, or 256 MiB to a device.
const FLUSH: Duration = Duration::from_millis(500);
/// Minimum number of bytes of donated inputs restored per nanosecond.
const DONATED_BYTES_PER_NS: u64 = 1;

/// The cost of calls that run a job's candidates, and the longest run to wait for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallTimeLimits {
    pub(super) longest_run: Option<Duration>,
    /// What the longest call that took outputs took.
    longest_outputs: Option<Duration>,
    /// The cost of each run outside the timed region.
    untimed: Duration,
}

/// The longest run to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum AwaitedCall {
    Measure { runs: u64 },
    Round { runs: u64 },
    Outputs,
}

/// The time limit of a call, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallLimit {
    pub(super) time: Duration,
    why: String,
}

impl CallTimeLimits {
    /// The limits of a job whose runs are unknown.
    pub(super) fn of(job: &Job) -> Self {
        let donated = job.inputs.iter().filter(|input| input.donated);
        let bytes = donated.fold(0, |sum: u64, input| sum.saturating_add(input.spec.host_bytes().unwrap_or(u64::MAX)));
        let flush = if job.cache_state == CacheState::Cold { FLUSH } else { Duration::ZERO };
        Self {
            longest_run: None,
            longest_outputs: None,
            untimed: flush.saturating_add(Duration::from_nanos(bytes / DONATED_BYTES_PER_NS)),
        }
    }

    /// Takes the time of a call that took outputs. Others of its kind write as much, so they take about as long.
    pub(super) fn took_outputs(&mut self, took: Duration) {
        self.longest_outputs = self.longest_outputs.max(Some(took));
    }

    /// Time for a call that takes outputs besides its run.
    fn outputs_grace(self) -> Duration {
        let seen = self.longest_outputs.map(|took| took.saturating_mul(TIMES_OUTPUTS));
        seen.map_or(OUTPUTS_GRACE, |usual| usual.clamp(LEAST_OUTPUTS_GRACE, OUTPUTS_GRACE))
    }

    /// The time limit of a call: at most `most`.
    pub(super) fn limit(self, awaited: AwaitedCall, most: Duration) -> CallLimit {
        let of_runs = self.longest_run.map(|longest| {
            let (runs, grace) = match awaited {
                AwaitedCall::Measure { runs } => (runs, GRACE),
                AwaitedCall::Round { runs } => (runs, PROFILE_GRACE),
                AwaitedCall::Outputs => (1, self.outputs_grace()),
            };
            let a_run = longest.saturating_add(self.untimed);
            let all = a_run.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX)).saturating_add(grace);
            let why = format!("the cut-off of slow candidates: runs of at most {longest:?}, {runs} asked for");
            CallLimit { time: all, why }
        });
        of_runs
            .filter(|limit| limit.time < most)
            .unwrap_or_else(|| CallLimit { time: most, why: "the time limit of a call".to_owned() })
    }
}

impl CallLimit {
    /// States in a time-out which limit applied.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        if failure.kind != FailureKind::Timeout {
            return failure;
        }
        failure.because(&self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(60);

    #[test]
    fn the_longest_run_limits_calls_but_never_beyond_the_limit_of_a_call() {
        let none = CallTimeLimits::default();
        assert_eq!(none.limit(AwaitedCall::Measure { runs: 1 }, MOST).time, MOST);
        let mut limits = CallTimeLimits { longest_run: Some(Duration::from_millis(100)), ..none };
        let seconds = |awaited| {
            CallTimeLimits { longest_run: Some(Duration::from_millis(100)), ..none }
                .limit(awaited, MOST)
                .time
                .as_secs_f64()
        };
        assert_eq!(seconds(AwaitedCall::Measure { runs: 30 }), 5.0);
        assert_eq!(seconds(AwaitedCall::Round { runs: 30 }), 13.0);
        assert_eq!(seconds(AwaitedCall::Outputs), 30.1);
        for (took, limit) in [(10, 5.1), (2_000, 8.1), (1_000, 8.1), (60_000, 30.1)] {
            limits.took_outputs(Duration::from_millis(took));
            assert_eq!(limits.limit(AwaitedCall::Outputs, MOST).time.as_secs_f64(), limit);
        }
        assert_eq!(seconds(AwaitedCall::Measure { runs: 1000 }), 60.0);
        assert_eq!(seconds(AwaitedCall::Measure { runs: u64::MAX }), 60.0);
        // time outside the timed region is no reason to cut a run off
        let untimed = CallTimeLimits { untimed: Duration::from_millis(400), ..limits };
        assert_eq!(untimed.limit(AwaitedCall::Measure { runs: 30 }, MOST).time, Duration::from_secs(17));
    }

    #[test]
    fn a_time_out_says_which_limit_it_was() {
        let limits = CallTimeLimits { longest_run: Some(Duration::from_millis(5)), ..CallTimeLimits::default() };
        let time_out =
            |words: &str| Failure::new(FailureKind::Timeout, format!("no answer to `measure` within 2s{words}"));
        let message =
            limits.limit(AwaitedCall::Measure { runs: 3 }, MOST).explain(time_out("; its stderr: W0000")).message;
        let expected = "no answer to `measure` within 2s, the cut-off of slow candidates: runs of at most 5ms, 3 \
                        asked for; its stderr: W0000";
        assert_eq!(message, expected);
        let message =
            limits.limit(AwaitedCall::Measure { runs: 3 }, Duration::from_secs(1)).explain(time_out("")).message;
        assert_eq!(message, "no answer to `measure` within 2s, the time limit of a call");
        let crash = Failure::new(FailureKind::Crash, "died");
        assert_eq!(limits.limit(AwaitedCall::Outputs, MOST).explain(crash.clone()), crash);
    }
}
