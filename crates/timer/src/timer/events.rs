//! The events of a run with their times: one stream, from the program, the tuner, its timer and the compile threads.
//!
//! Work that takes time is a [`Slice`], which begins and ends; the other kinds are moments in it. A [`Sink`] receives
//! the stream: progress, the time breakdown, the trace of a run and the keepers of profiles are folds of this stream.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use autotune_lowered_timer::timer::events::{Event, Events, EventKind, Slice};
//!
//! let begun = Arc::new(Mutex::new(Vec::new()));
//! let names = Arc::clone(&begun);
//! let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
//!     if let EventKind::Begin(slice) = event.kind {
//!         names.lock().unwrap().push(slice.to_string());
//!     }
//! })));
//! let _open = events.open(Slice::Step("scan"));
//! assert_eq!(*begun.lock().unwrap(), ["scan"]);
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::job::{Job, Prepared};
use super::profiled::ProfiledRound;
use super::replay::RecordedMethod;
use crate::config::Config;
use crate::failure::Failure;

/// The default track.
pub const TUNER: &str = "tuner";

/// One event.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Nanoseconds since 1970, by a clock that never goes back.
    pub at_ns: u64,
    /// The track: its events are sequential, and its slices nest.
    pub track: &'a str,
    /// The kind.
    pub kind: EventKind<'a>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy)]
pub enum EventKind<'a> {
    /// A slice begins.
    Begin(&'a Slice<'a>),
    /// The innermost slice of the track ends: this one.
    End(&'a Slice<'a>),
    /// An operation will be measured.
    Started {
        /// Candidates with programs of their own.
        programs: usize,
        /// Rounds that the sample log already holds.
        rounds_kept: u32,
    },
    /// A config was tried, or was already known.
    Evaluated {
        /// How many so far.
        done: usize,
        /// How many in total, if known.
        of: Option<usize>,
        /// The best ratio to the baseline so far.
        best: Option<f64>,
    },
    /// A candidate's executable is ready.
    Prepared {
        /// Its cost.
        cost: &'a Prepared,
        /// Whether it is the baseline, which is always compiled.
        is_baseline: bool,
        /// Candidates done, failed ones too.
        done: usize,
        /// Candidates in all.
        of: usize,
    },
    /// The wave that was compiled last on this track shared the cores with waves of other calls.
    CompiledBeside {
        /// How many calls compiled at the same time, this one included.
        calls: usize,
    },
    /// The timer was asked to prepare a candidate, or for its outputs.
    Called {
        /// Which one.
        candidate: usize,
        /// For what.
        method: RecordedMethod,
        /// Why it could not.
        failure: Option<&'a Failure>,
    },
    /// Candidates ran under one profile.
    Profiled {
        /// Which ones, and how often each.
        launches: &'a [(usize, u32)],
        /// The profile, or why there is none.
        round: Result<&'a ProfiledRound, &'a Failure>,
    },
    /// A candidate was dropped.
    Failed {
        /// Which one.
        candidate: usize,
        /// Its config.
        config: &'a Config,
        /// Why.
        failure: &'a Failure,
    },
    /// Samples of a round are in the sample log.
    Sampled {
        /// Their sum, nanoseconds.
        running_ns: u64,
    },
    /// Other processes used the cores or the device during the innermost slice of the track, a round.
    Contended {
        /// How many cores they used while threads of the measurement waited, or which part of the device's time.
        used: f64,
        /// Whether it is the device's.
        of_device: bool,
    },
    /// A round is measured.
    Round {
        /// Rounds done.
        done: u32,
        /// The requested rounds, or the usual ones.
        of: u32,
        /// Whether there are never more; an undecided race goes beyond the usual ones.
        is_most: bool,
        /// Candidates that were measured in it.
        contenders: usize,
    },
    /// A message for the waiting user before a long step: one line.
    Ahead(&'a str),
    /// An operation ended.
    Finished {
        /// How, in the words of the tables.
        status: &'static str,
        /// Why.
        reason: &'a str,
        /// The speed-up of the best config over the baseline.
        speed_up: Option<f64>,
    },
}

/// Work that takes time. Its `Display` is its name in traces.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Slice<'a> {
    /// A step of the program or of an operation.
    Step(&'a str),
    /// A step that comes often.
    Detail(&'a str),
    /// An operation of a plan.
    Operation {
        /// `op@vN:key`, or another measured program.
        name: &'a str,
        /// Which one, from zero.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// A search for the configs to race.
    Search {
        /// The strategy.
        strategy: &'a str,
        /// Configs to choose from.
        configs: usize,
        /// Whether these are a sample of more.
        sampled: bool,
    },
    /// One config that a search requests, in addition to the baseline.
    Try {
        /// Which one, from one.
        number: usize,
        /// The config.
        config: &'a Config,
    },
    /// Everything that a timer does for a job.
    Job(&'a Job),
    /// A part of the work on an operation.
    Phase(Phase),
    /// A round.
    Round {
        /// Which one of the operation's, from one.
        number: u64,
        /// Candidates that are measured in it.
        contenders: usize,
    },
    /// Work on one candidate.
    Candidate {
        /// Its place in the job.
        number: usize,
        /// Its config.
        config: Option<&'a Config>,
    },
    /// A program that is compiled concurrently with others.
    Compile {
        /// Its candidate.
        candidate: usize,
        /// `op@vN:key`.
        operation: &'a str,
        /// The candidate's config.
        config: &'a Config,
    },
    /// Another worker is started because of a failure.
    Restart(&'a Failure),
}

/// A part of the work on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The configs to choose from are listed.
    ListConfigs,
    /// Inputs are made and written.
    MakeInputs,
    /// The timer loads them.
    LoadInputs,
    /// Candidates are lowered on demand.
    Lower,
    /// Programs are compiled, or taken from the store, and loaded.
    Compile,
    /// First runs.
    WarmUp,
    /// Outputs are compared with the baseline's.
    CompareOutputs,
    /// Rounds.
    Measure,
    /// A winner's rounds in fresh processes, with all that these need.
    Confirm,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::ListConfigs => "list configs",
            Self::MakeInputs => "make inputs",
            Self::LoadInputs => "load inputs",
            Self::Lower => "lower",
            Self::Compile => "compile",
            Self::WarmUp => "warm-up",
            Self::CompareOutputs => "compare outputs",
            Self::Measure => "measure",
            Self::Confirm => "confirm",
        }
    }
}

impl fmt::Display for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(name) | Self::Detail(name) | Self::Operation { name, .. } => f.write_str(name),
            Self::Search { .. } => f.write_str("search"),
            Self::Try { number, .. } => write!(f, "try {number}"),
            Self::Job(_) => f.write_str("job"),
            Self::Phase(phase) => f.write_str(phase.name()),
            Self::Round { number, .. } => write!(f, "round {number}"),
            Self::Candidate { number, .. } => write!(f, "candidate {number}"),
            Self::Compile { candidate, .. } => write!(f, "compile candidate {candidate}"),
            Self::Restart(_) => f.write_str("restart the worker"),
        }
    }
}

/// A receiver of events.
pub trait Sink: Send {
    /// Takes an event. An error becomes the job's failure if the event can be refused: the beginning of a
    /// [`Slice::Job`], and a [`EventKind::Profiled`] with a profile.
    ///
    /// # Errors
    ///
    /// If it refuses the event, because it cannot store the job's data.
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure>;
}

impl<F: FnMut(&Event<'_>) + Send> Sink for F {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        self(event);
        Ok(())
    }
}

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A handle to emit events; clones lead to the same sinks. Without a sink it costs almost nothing.
#[derive(Clone)]
pub struct Events {
    clock: Clock,
    track: Arc<str>,
    sinks: Vec<Arc<Mutex<dyn Sink>>>,
}

impl Default for Events {
    /// A stream without sinks: starts at calendar time and continues with a monotonic clock.
    fn default() -> Self {
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let since_1970 = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let begin = Instant::now();
        Self::by(move || since_1970.saturating_add(nanoseconds(begin.elapsed())))
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("track", &self.track).field("sinks", &self.sinks.len()).finish()
    }
}

impl Events {
    /// A stream by this clock, which gives nanoseconds since 1970 and never goes back.
    pub fn by(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), track: TUNER.into(), sinks: Vec::new() }
    }

    /// The same stream with one more sink for events from this handle and its clones.
    #[must_use]
    pub fn and(&self, sink: Arc<Mutex<dyn Sink>>) -> Self {
        let mut with = self.clone();
        with.sinks.push(sink);
        with
    }

    /// The same stream on another track. The track has this name; beside one of several tuners, the tuner's name
    /// precedes it.
    #[must_use]
    pub fn on_track(&self, name: &str) -> Self {
        let track = if *self.track == *TUNER { name.into() } else { format!("{} {name}", self.track).into() };
        Self { track, ..self.clone() }
    }

    /// Emits an event.
    pub fn tell(&self, kind: EventKind<'_>) {
        let _ = self.offer(kind);
    }

    /// Emits an event that a sink may refuse.
    ///
    /// # Errors
    /// If a sink refuses it: the first refusal. Every sink gets the event.
    pub fn offer(&self, kind: EventKind<'_>) -> Result<(), Failure> {
        if self.sinks.is_empty() {
            return Ok(());
        }
        let event = Event { at_ns: (self.clock)(), track: &self.track, kind };
        let mut reported = Ok(());
        for sink in &self.sinks {
            reported = reported.and(sink.lock().unwrap_or_else(PoisonError::into_inner).take(&event));
        }
        reported
    }

    /// Begins a slice, which ends when the result is dropped.
    pub fn open<'e>(&'e self, slice: Slice<'e>) -> OpenSlice<'e> {
        self.tell(EventKind::Begin(&slice));
        OpenSlice { events: self, slice }
    }

    /// The same for a slice that a sink may refuse: then it ends at once.
    ///
    /// # Errors
    /// As [`offer`](Self::offer).
    pub fn try_open<'e>(&'e self, slice: Slice<'e>) -> Result<OpenSlice<'e>, Failure> {
        let begun = self.offer(EventKind::Begin(&slice));
        let open = OpenSlice { events: self, slice };
        begun.map(|()| open)
    }
}

/// A slice that is open.
#[derive(Debug)]
#[must_use = "a slice ends where this is dropped"]
pub struct OpenSlice<'e> {
    events: &'e Events,
    slice: Slice<'e>,
}

impl Drop for OpenSlice<'_> {
    fn drop(&mut self) {
        self.events.tell(EventKind::End(&self.slice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn slices_end_however_their_work_does_and_a_refusal_reaches_every_sink() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&reported);
        struct Refusing;
        impl Sink for Refusing {
            fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
                let is_refused = matches!(event.kind, EventKind::Begin(Slice::Step("refused")));
                if is_refused { Err(Failure::new(FailureKind::Device, "the disk is full")) } else { Ok(()) }
            }
        }
        let clock = std::sync::atomic::AtomicU64::new(0);
        let events = Events::by(move || clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let events = events.and(Arc::new(Mutex::new(Refusing)));
        let events = events.and(Arc::new(Mutex::new(move |event: &Event<'_>| {
            let what = match event.kind {
                EventKind::Begin(slice) => format!("+{slice}"),
                EventKind::End(slice) => format!("-{slice}"),
                _ => unreachable!(),
            };
            note.lock().unwrap().push((event.at_ns, event.track.to_owned(), what));
        })));
        let beside = events.on_track("compile-0");
        let early = || -> Result<(), Failure> {
            let _outer = events.open(Slice::Phase(Phase::Compile));
            let _inner = beside.try_open(Slice::Step("refused"))?;
            unreachable!()
        };
        assert_eq!(early().unwrap_err().message, "the disk is full");
        let expected = [(0, "tuner", "+compile"), (1, "compile-0", "+refused"), (2, "compile-0", "-refused")];
        let expected = expected.into_iter().chain([(3, "tuner", "-compile")]);
        let expected: Vec<_> = expected.map(|(at, track, what)| (at, track.to_owned(), what.to_owned())).collect();
        assert_eq!(*reported.lock().unwrap(), expected);
        assert_eq!(&*events.on_track("tuner 1").on_track("compile-0").track, "tuner 1 compile-0");
    }
}
