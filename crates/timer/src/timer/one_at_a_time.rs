//! Several timers on a device that one process holds alone, as one: at most one of them lives at any moment. Another one
//! is started whenever a candidate of its own is asked for, which takes as long as a start of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::events::Events;
use super::info::TimerInfo;
use super::job::{Job, Prepared};
use super::measured::{OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use super::model::Timer;
use super::protocol::ProgramSignature;
use super::side_by_side::{OtherClock, combined, separate, stretches};
use crate::failure::{Failure, FailureKind};

/// Starts a timer anew.
pub type StartTimer<'s> = Box<dyn FnMut() -> Result<Box<dyn Timer>, Failure> + Send + 's>;

/// Timers on one device with the same clock and metric, of which one lives at a time.
pub struct OneAtATime<'s> {
    starts: Vec<StartTimer<'s>>,
    /// The one that lives, and whether it has begun the job.
    live: Option<LiveTimer>,
    info: TimerInfo,
    events: Events,
    job: Option<Job>,
    /// Candidates that whoever owns them loads whenever it is started.
    prepared: BTreeSet<usize>,
    /// Why a prepared candidate is not loaded now.
    missing: BTreeMap<usize, Failure>,
    longest_run: Option<Duration>,
}

struct LiveTimer {
    owner: usize,
    timer: Box<dyn Timer>,
    has_begun: bool,
}

impl<'s> OneAtATime<'s> {
    /// Several timers as one, by what each said of itself when it ran alone, and how it is started again. A candidate's
    /// [timer](super::JobCandidate::timer) is its place here.
    ///
    /// # Errors
    /// If their devices, clocks or metrics differ, or there are none.
    pub fn new(timers: Vec<(TimerInfo, StartTimer<'s>)>) -> Result<Self, OtherClock> {
        let info = combined(&timers.iter().map(|(info, _)| info).collect::<Vec<_>>())?;
        Ok(Self {
            starts: timers.into_iter().map(|(_, start)| start).collect(),
            live: None,
            info,
            events: Events::default(),
            job: None,
            prepared: BTreeSet::new(),
            missing: BTreeMap::new(),
            longest_run: None,
        })
    }

    /// One of them alone, started anew: a fresh process.
    ///
    /// # Errors
    /// If it does not start.
    pub fn alone(&mut self, timer: usize) -> Result<&mut dyn Timer, Failure> {
        // the device is free only then
        self.live = None;
        let start = self.starts.get_mut(timer).ok_or_else(|| nobody(timer))?;
        let live = self.live.insert(LiveTimer { owner: timer, timer: start()?, has_begun: false });
        Ok(&mut *live.timer)
    }

    fn owner(&self, candidate: usize) -> usize {
        let owner = |job: &Job| job.candidates.get(candidate).map(|candidate| candidate.timer);
        self.job.as_ref().and_then(owner).unwrap_or(0)
    }

    /// The timer with this number, with the job and what it had prepared.
    fn bring_up(&mut self, owner: usize) -> Result<&mut dyn Timer, Failure> {
        if self.live.as_ref().is_none_or(|live| live.owner != owner) {
            self.alone(owner)?;
        }
        let all: Vec<usize> = self.prepared.iter().copied().filter(|one| self.owner(*one) == owner).collect();
        let Some(live) = &mut self.live else { return Err(nobody(owner)) };
        if !live.has_begun {
            let job = self.job.as_ref().ok_or_else(|| Failure::new(FailureKind::Device, "no job has begun"))?;
            live.timer.follow(&self.events);
            live.timer.begin(&separate(job, owner)?)?;
            live.timer.cut_off(self.longest_run);
            for candidate in all {
                // it fails when it is asked for
                match live.timer.prepare(candidate) {
                    Ok(_) => self.missing.remove(&candidate),
                    Err(failure) => self.missing.insert(candidate, failure),
                };
            }
            live.has_begun = true;
        }
        Ok(&mut *live.timer)
    }

    /// The timer of a candidate that was prepared.
    fn of(&mut self, candidate: usize) -> Result<&mut dyn Timer, Failure> {
        self.bring_up(self.owner(candidate))?;
        match (self.missing.get(&candidate), &mut self.live) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some(live)) => Ok(&mut *live.timer),
            (None, None) => Err(nobody(candidate)),
        }
    }
}

fn nobody(timer: usize) -> Failure {
    Failure::new(FailureKind::Device, format!("there is no timer {timer}"))
}

impl Timer for OneAtATime<'_> {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn follow(&mut self, events: &Events) {
        self.events = events.clone();
        if let Some(live) = &mut self.live {
            live.timer.follow(events);
        }
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.end();
        self.job = Some(job.clone());
        Ok(())
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.bring_up(self.owner(candidate))?.signature(candidate)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let prepared = self.bring_up(self.owner(candidate))?.prepare(candidate)?;
        self.prepared.insert(candidate);
        self.missing.remove(&candidate);
        Ok(prepared)
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        let mut durations = Vec::with_capacity(round.launches.len());
        for (_, stretch) in stretches(&round.launches, |candidate| self.owner(candidate)) {
            let Some(first) = stretch.first() else { continue };
            durations.extend(self.of(first.candidate)?.measure(&RoundRequest::new(stretch))?.durations_ns);
        }
        if let Some(live) = &self.live {
            self.info.others_use = live.timer.info().others_use;
        }
        Ok(RoundSamples::new(durations))
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.longest_run = longest_run;
        if let Some(live) = &mut self.live {
            live.timer.cut_off(longest_run);
        }
    }

    fn outputs(&mut self, candidate: usize, _taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        // none are kept: another process has to compare with them
        self.of(candidate)?.outputs(candidate, OutputsAs::Files)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.prepared.retain(|candidate| !without.contains(candidate));
        self.live = None;
        self.info.epoch = self.info.epoch.saturating_add(1);
        Ok(())
    }

    fn end(&mut self) {
        self.prepared.clear();
        self.missing.clear();
        self.job = None;
        self.longest_run = None;
        if let Some(live) = &mut self.live {
            live.timer.end();
            live.has_begun = false;
        }
    }
}
