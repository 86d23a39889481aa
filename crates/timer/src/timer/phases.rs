//! A timeline of the work on an operation, as a plane for stored profiles.

use super::events::{Event, EventKind, Phase, Slice};
use super::profiled::{ProfileClock, ProfiledRound};
use crate::profile::{PlaneWriter, WrittenStat};

/// The plane of a stored profile with the work on its operation until then.
pub const PHASES_PLANE: &str = "/host:autotune-lowered";

/// Maximum number of slices stored for one operation.
const MAX_SLICES: usize = 4096;

/// A profile that begins further than this from its slice is by another clock.
const SAME_CLOCK_NS: i64 = 1_000_000_000;

#[derive(Debug)]
struct RecordedSlice {
    name: String,
    is_round: bool,
    candidate: Option<usize>,
    start_ns: i64,
    /// `None` while it is open.
    end_ns: Option<i64>,
    failure: Option<String>,
}

/// The slices of the current job, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Phases {
    /// The track of the current job.
    track: Option<String>,
    operation: String,
    configs: Vec<String>,
    recorded: Vec<RecordedSlice>,
    /// Indices of the open ones; `None` for one that is not stored.
    open: Vec<Option<usize>>,
}

fn signed(at_ns: u64) -> i64 {
    i64::try_from(at_ns).unwrap_or(i64::MAX)
}

impl Phases {
    pub(super) fn take(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Begin(Slice::Job(job)) => {
                *self = Self {
                    track: Some(event.track.to_owned()),
                    operation: job.call.to_string(),
                    configs: job.candidates.iter().map(|one| one.config.as_str().to_owned()).collect(),
                    ..Self::default()
                };
            }
            // concurrent compilation on other tracks is not part of it either
            _ if self.track.as_deref() != Some(event.track) => {}
            EventKind::End(Slice::Job(_)) => self.track = None,
            EventKind::Begin(slice) => self.begin(slice, signed(event.at_ns)),
            EventKind::End(_) => {
                if let Some(recorded) = self.open.pop().flatten().and_then(|place| self.recorded.get_mut(place)) {
                    recorded.end_ns = Some(signed(event.at_ns));
                }
            }
            EventKind::Called { failure, .. } => self.fail(failure.map(ToString::to_string)),
            EventKind::Profiled { round, .. } => self.fail(round.err().map(ToString::to_string)),
            _ => {}
        }
    }

    fn begin(&mut self, slice: &Slice<'_>, start_ns: i64) {
        let (name, candidate) = match slice {
            // its rounds are phases here
            Slice::Phase(Phase::Measure) | Slice::Detail(_) => return self.open.push(None),
            Slice::Restart(_) => ("restart".to_owned(), None),
            Slice::Candidate { number, .. } => (slice.to_string(), Some(*number)),
            _ => (slice.to_string(), None),
        };
        if self.recorded.len() >= MAX_SLICES {
            self.recorded.pop_if(|last| last.is_round && last.end_ns.is_some());
        }
        self.open.push(Some(self.recorded.len()));
        let is_round = matches!(slice, Slice::Round { .. });
        self.recorded.push(RecordedSlice { name, is_round, candidate, start_ns, end_ns: None, failure: None });
    }

    /// The outcome of the last call in the innermost slice.
    fn fail(&mut self, failure: Option<String>) {
        if let Some(recorded) = self.innermost().and_then(|place| self.recorded.get_mut(place)) {
            recorded.failure = failure;
        }
    }

    fn innermost(&self) -> Option<usize> {
        self.open.iter().rev().find_map(|place| *place)
    }

    /// The bytes that add the plane to a profile that was read at this time; `None` if the profile does not say when it
    /// was taken, or its time differs from this machine's clock.
    pub(super) fn plane(&self, at_ns: u64, round: &ProfiledRound, launches: &[(usize, u32)]) -> Option<Vec<u8>> {
        let ProfileClock { epoch_ns, base_ns, end_ns: profile_ns } = round.clock()?;
        let now_ns = signed(at_ns);
        let (first, last) = (self.recorded.first()?, self.recorded.get(self.innermost()?)?);
        let begin_ns = epoch_ns.checked_add(base_ns)?;
        let is_same = (last.start_ns - SAME_CLOCK_NS..now_ns.saturating_add(SAME_CLOCK_NS)).contains(&begin_ns);
        if !is_same {
            return None;
        }
        let mut plane = PlaneWriter::new(PHASES_PLANE);
        let line = plane.line("tuner", first.start_ns.checked_sub(epoch_ns)?);
        // events after the profile, such as writing and reading it, are excluded
        let last_ns = profile_ns.clamp(last.start_ns, now_ns.max(last.start_ns));
        let at = |start_ns: i64, end_ns: Option<i64>| {
            (start_ns - first.start_ns, end_ns.unwrap_or(last_ns).min(last_ns) - first.start_ns)
        };
        let operation = ("operation", WrittenStat::Text(&self.operation));
        plane.event(line, &self.operation, at(first.start_ns, None), &[operation]);
        for recorded in &self.recorded {
            let failed = if recorded.failure.is_some() { " failed" } else { "" };
            let mut stats = vec![operation];
            stats.extend(recorded.candidate.and_then(|number| self.config(number)));
            stats.extend(recorded.failure.as_ref().map(|failure| ("failure", WrittenStat::Text(failure))));
            plane.event(line, &format!("{}{failed}", recorded.name), at(recorded.start_ns, recorded.end_ns), &stats);
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
