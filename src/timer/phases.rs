//! What a timer was asked to do for an operation, and when: a plane for the profiles that are kept.

use std::time::{SystemTime, UNIX_EPOCH};

use super::model::Job;
use super::profiled::{ProfileClock, ProfiledRound};
use crate::failure::Failure;
use crate::profile::{PlaneWriter, WrittenStat};

/// The plane of a kept profile that holds what was done for its operation until then.
pub(crate) const PHASES_PLANE: &str = "/host:autotune-lowered";

/// The most calls that are remembered of one operation: rounds beyond are those that are looked at alone.
const MAX_CALLS: usize = 4096;

/// A profile that begins further than this from the call which took it is of another clock.
const SAME_CLOCK_NS: i64 = 1_000_000_000;

/// A part of the work on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Inputs,
    Compile,
    WarmUp,
    CompareOutputs,
    Round(u32),
    Restart,
}

impl Phase {
    fn name(self) -> String {
        let name = match self {
            Self::Inputs => "load inputs",
            Self::Compile => "compile",
            Self::WarmUp => "warm-up",
            Self::CompareOutputs => "compare outputs",
            Self::Round(number) => return format!("round {number}"),
            Self::Restart => "restart",
        };
        name.to_owned()
    }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[derive(Debug)]
struct Call {
    phase: Phase,
    candidate: Option<usize>,
    start_ns: i64,
    end_ns: i64,
    failure: Option<String>,
}

/// The calls for the operation at hand.
#[derive(Debug, Default)]
pub(super) struct Phases {
    operation: String,
    configs: Vec<String>,
    calls: Vec<Call>,
    rounds: u32,
}

impl Phases {
    /// Of a job nothing is done yet.
    pub(super) fn of(job: &Job) -> Self {
        Self {
            operation: job.call.to_string(),
            configs: job.candidates.iter().map(|candidate| candidate.config.as_str().to_owned()).collect(),
            ..Self::default()
        }
    }

    /// The phase that these launches are: rounds hold the baseline twice, and the one before them one candidate each.
    pub(super) fn of_launches(&mut self, launches: &[(usize, u32)]) -> (Phase, Option<usize>) {
        if let [(candidate, _)] = launches {
            return (Phase::WarmUp, Some(*candidate));
        }
        self.rounds += 1;
        (Phase::Round(self.rounds), None)
    }

    /// Notes a call that is over.
    pub(super) fn note(&mut self, phase: Phase, candidate: Option<usize>, start_ns: i64, failure: Option<&Failure>) {
        let end_ns = now_ns();
        let failure = failure.map(ToString::to_string);
        self.add(Call { phase, candidate, start_ns, end_ns, failure });
    }

    fn add(&mut self, mut call: Call) {
        // the calendar's clock may be set back meanwhile
        let last_ns = self.calls.last().map_or(call.start_ns, |last| last.end_ns);
        call.start_ns = call.start_ns.max(last_ns);
        call.end_ns = call.end_ns.max(call.start_ns);
        if self.calls.len() >= MAX_CALLS && self.calls.last().is_some_and(|last| matches!(last.phase, Phase::Round(_)))
        {
            self.calls.pop();
        }
        self.calls.push(call);
    }

    /// The bytes that add the plane to the profile of the last call; `None` where the profile does not tell when it was taken, or
    /// tells another time than this machine's clock.
    pub(super) fn plane(&self, round: &ProfiledRound, launches: &[(usize, u32)]) -> Option<Vec<u8>> {
        let ProfileClock { epoch_ns, base_ns, end_ns: profile_ns } = round.clock()?;
        let (first, last) = (self.calls.first()?, self.calls.last()?);
        let begin_ns = epoch_ns.checked_add(base_ns)?;
        let is_same = (last.start_ns - SAME_CLOCK_NS..last.end_ns + SAME_CLOCK_NS).contains(&begin_ns);
        if !is_same {
            return None;
        }
        let mut plane = PlaneWriter::new(PHASES_PLANE);
        let line = plane.line("tuner", first.start_ns.checked_sub(epoch_ns)?);
        // what came after the profile, as it was written down and read, is not in it
        let last_ns = profile_ns.clamp(last.start_ns, last.end_ns);
        let at = |start_ns: i64, end_ns: i64| (start_ns - first.start_ns, end_ns.min(last_ns) - first.start_ns);
        let operation = ("operation", WrittenStat::Text(&self.operation));
        plane.event(line, &self.operation, at(first.start_ns, last.end_ns), &[operation]);
        for calls in self.calls.chunk_by(|one, next| one.phase == next.phase) {
            let (Some(from), Some(to)) = (calls.first(), calls.last()) else { continue };
            plane.event(line, &from.phase.name(), at(from.start_ns, to.end_ns), &[operation]);
            for call in calls.iter().filter(|call| call.candidate.is_some() || call.failure.is_some()) {
                let failed = if call.failure.is_some() { " failed" } else { "" };
                let whose = call.candidate.map_or_else(|| from.phase.name(), |number| format!("candidate {number}"));
                let mut stats = vec![operation];
                stats.extend(call.candidate.and_then(|number| self.config(number)));
                stats.extend(call.failure.as_ref().map(|failure| ("failure", WrittenStat::Text(failure))));
                plane.event(line, &format!("{whose}{failed}"), at(call.start_ns, call.end_ns), &stats);
            }
        }
        let line = plane.line("this profile's executions", base_ns);
        for (place, &(candidate, runs)) in launches.iter().enumerate() {
            let start_ps = round.runs(place).map(|execution| execution.start_ps).min();
            let end_ps = round.runs(place).map(|execution| execution.end_ps).max();
            let (Some(start_ps), Some(end_ps)) = (start_ps, end_ps) else { continue };
            let mut stats = vec![operation, ("runs", WrittenStat::Int(i64::from(runs)))];
            stats.extend(self.config(candidate));
            let times = (start_ps.div_euclid(1000), end_ps.div_euclid(1000));
            plane.event(line, &format!("candidate {candidate}"), times, &stats);
        }
        Some(plane.to_space())
    }

    fn config(&self, candidate: usize) -> Option<(&str, WrittenStat<'_>)> {
        self.configs.get(candidate).map(|config| ("config", WrittenStat::Text(config)))
    }
}
