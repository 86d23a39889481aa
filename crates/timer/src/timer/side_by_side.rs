//! Several timers on one device as one: each candidate belongs to one of them, and their runs alternate within each
//! round. So programs of two plugins, or of a plugin and of JAX, are compared as fairly as those of one.

use std::time::Duration;

use super::events::Events;
use super::info::{TimerCapabilities, TimerInfo};
use super::job::{Job, Prepared};
use super::measured::{CandidateRuns, OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use super::model::Timer;
use super::protocol::ProgramSignature;
use crate::failure::{Failure, FailureKind};
use crate::io_hint::scratch_hint;

/// Why timers cannot be combined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtherClock {
    /// There is no timer.
    #[error("no timer is named")]
    None,
    /// Their devices differ.
    #[error("`{other}` runs on {other_device}, `{first}` on {first_device}: times of two devices cannot be compared")]
    Device {
        /// The first timer.
        first: String,
        /// Its device.
        first_device: String,
        /// The other timer.
        other: String,
        /// Its device.
        other_device: String,
    },
    /// Their clocks or metrics differ.
    #[error(
        "`{other}` times by {other_clock}, `{first}` by {first_clock}: such times cannot be compared; choose two \
         timers with one clock, or one metric for both with `--metric`"
    )]
    Differs {
        /// The first timer.
        first: String,
        /// Its clock and metric.
        first_clock: String,
        /// The other timer.
        other: String,
        /// Its clock and metric.
        other_clock: String,
    },
}

/// Timers on one device with the same clock and metric. Each has a worker of its own, and only one runs at any time.
///
/// A whole round under one profile becomes a profile for each group of consecutive candidates of one timer.
pub struct SideBySide {
    first: Box<dyn Timer>,
    others: Vec<Box<dyn Timer>>,
    /// The timers of the job's candidates.
    owners: Vec<usize>,
    info: TimerInfo,
}

impl SideBySide {
    /// Several timers as one. A candidate's [timer](super::JobCandidate::timer) is 0 for the first one and 1 for the
    /// first of the others.
    ///
    /// # Errors
    /// If their devices, clocks or metrics differ.
    pub fn new(first: Box<dyn Timer>, others: Vec<Box<dyn Timer>>) -> Result<Self, OtherClock> {
        let all: Vec<&TimerInfo> =
            std::iter::once(first.info()).chain(others.iter().map(|other| other.info())).collect();
        let info = combined(&all)?;
        Ok(Self { first, others, owners: Vec::new(), info })
    }

    /// The first one alone: its worker is started again without the others'.
    pub fn first(&mut self) -> &mut dyn Timer {
        &mut *self.first
    }

    /// The first of the others.
    pub fn second(&self) -> Option<&dyn Timer> {
        self.others.first().map(|timer| &**timer)
    }

    /// Takes over what changes while timers measure.
    fn look_again(&mut self) {
        // grows whenever any worker is restarted
        self.info.epoch = self.all().map(|timer| timer.info().epoch).fold(0, u32::saturating_add);
        self.info.clocks_seen.clone_from(&self.first.info().clocks_seen);
        self.info.others_use = self.first.info().others_use;
    }

    fn owner(&self, candidate: usize) -> usize {
        self.owners.get(candidate).copied().unwrap_or(0)
    }

    fn timer(&mut self, owner: usize) -> &mut dyn Timer {
        match owner.checked_sub(1).and_then(|other| self.others.get_mut(other)) {
            Some(other) => &mut **other,
            None => &mut *self.first,
        }
    }

    fn of(&mut self, candidate: usize) -> &mut dyn Timer {
        self.timer(self.owner(candidate))
    }

    fn all(&self) -> impl Iterator<Item = &dyn Timer> {
        std::iter::once(&*self.first).chain(self.others.iter().map(|timer| &**timer))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut (dyn Timer + 'static)> {
        std::iter::once(&mut *self.first).chain(self.others.iter_mut().map(|timer| &mut **timer))
    }
}

/// Several timers as one, if their times can be compared.
pub(super) fn combined(all: &[&TimerInfo]) -> Result<TimerInfo, OtherClock> {
    let Some((own, others)) = all.split_first() else { return Err(OtherClock::None) };
    for other in others {
        let (name, other_name) = (own.name.clone(), other.name.clone());
        let (device, other_device) = (&own.device.identity, &other.device.identity);
        if device != other_device {
            let (first_device, other_device) = (device.to_string(), other_device.to_string());
            return Err(OtherClock::Device { first: name, first_device, other: other_name, other_device });
        }
        let clock = |info: &TimerInfo| format!("{} ({})", info.source, info.metric);
        let (first_clock, other_clock) = (clock(own), clock(other));
        if first_clock != other_clock || own.can.measure_rounds != other.can.measure_rounds {
            return Err(OtherClock::Differs { first: name, first_clock, other: other_name, other_clock });
        }
    }
    Ok(info_of_all(own, all))
}

/// On the first one's device, as slow as the slowest clock.
fn info_of_all(first: &TimerInfo, all: &[&TimerInfo]) -> TimerInfo {
    let own = &first.device.environment;
    // the compiler names each timer with its environment, since the device only has the first one's
    let compiler = |timer: &&TimerInfo| {
        let environment = &timer.device.environment;
        let name = environment.compiler().unwrap_or_else(|| timer.name.clone());
        // flags and drivers of another one are not part of the first device's environment
        match environment.differences(own).is_empty() {
            true => name,
            false => format!("{name} ({})", environment.xla_flags.join(" ")),
        }
    };
    let names: Vec<&str> = all.iter().map(|timer| timer.name.as_str()).collect();
    let mut notes: Vec<String> = Vec::new();
    for note in all.iter().flat_map(|timer| &timer.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    let resolutions = all.iter().map(|timer| timer.clock_resolution_ns).collect::<Option<Vec<u64>>>();
    let counts = all.iter().map(|timer| timer.device_count).collect::<Option<Vec<usize>>>();
    let can = TimerCapabilities {
        measure_rounds: first.can.measure_rounds,
        only_one_job_a_call: all.iter().any(|timer| timer.can.only_one_job_a_call),
        ..TimerCapabilities::default()
    };
    let mut info = TimerInfo::new(names.join(" + "), first.source.clone(), first.device.clone());
    info.clock_resolution_ns = resolutions.and_then(|all| all.into_iter().max());
    info.compiler = Some(all.iter().map(compiler).collect::<Vec<_>>().join(" + "));
    info.epoch = all.iter().map(|timer| timer.epoch).fold(0, u32::saturating_add);
    info.clocks(first.clocks)
        .metric(first.metric.clone())
        .device_count(counts.and_then(|all| all.into_iter().min()))
        .notes(notes)
        .can(can)
}

/// A job for one of several timers: the files of their workers are separate.
pub(super) fn separate(job: &Job, timer: usize) -> Result<Job, Failure> {
    let scratch = job.scratch.join(format!("timer-{timer}"));
    std::fs::create_dir_all(&scratch).map_err(|error| {
        let io_hint = scratch_hint(&error);
        let message = format!("`{}`: cannot be made: {error}{io_hint}", scratch.display());
        Failure::new(FailureKind::Device, message)
    })?;
    Ok(Job { scratch, ..job.clone() })
}

/// Consecutive launches of one timer.
pub(super) fn stretches(
    launches: &[CandidateRuns],
    owner: impl Fn(usize) -> usize,
) -> Vec<(usize, Vec<CandidateRuns>)> {
    let mut found: Vec<(usize, Vec<CandidateRuns>)> = Vec::new();
    for &of in launches {
        match found.last_mut() {
            Some((last, stretch)) if *last == owner(of.candidate) => stretch.push(of),
            _ => found.push((owner(of.candidate), vec![of])),
        }
    }
    found
}

impl Timer for SideBySide {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn follow(&mut self, events: &Events) {
        self.all_mut().for_each(|timer| timer.follow(events));
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.owners = job.candidates.iter().map(|candidate| candidate.timer).collect();
        for (index, timer) in self.all_mut().enumerate() {
            timer.begin(&separate(job, index)?)?;
        }
        self.look_again();
        Ok(())
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.of(candidate).signature(candidate)
    }

    fn expect(&mut self, candidates: &[usize]) -> Result<(), Failure> {
        let owners: Vec<usize> = candidates.iter().map(|&candidate| self.owner(candidate)).collect();
        for (index, timer) in self.all_mut().enumerate() {
            let own = candidates.iter().zip(&owners).filter(|(_, owner)| **owner == index);
            timer.expect(&own.map(|(&candidate, _)| candidate).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.of(candidate).prepare(candidate)
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        if round.with_profile {
            let message = format!("the timer `{}` takes no profiles", self.info.name);
            return Err(Failure::new(FailureKind::Device, message));
        }
        let mut durations = Vec::with_capacity(round.launches.len());
        for (owner, stretch) in stretches(&round.launches, |candidate| self.owner(candidate)) {
            durations.extend(self.timer(owner).measure(&RoundRequest::new(stretch))?.durations_ns);
        }
        self.look_again();
        Ok(RoundSamples::new(durations))
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.all_mut().for_each(|timer| timer.cut_off(longest_run));
    }

    fn outputs(&mut self, candidate: usize, _taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        // none are kept: another timer's worker would have to compare with them
        self.of(candidate).outputs(candidate, OutputsAs::Files)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        let restarted = self.all_mut().try_for_each(|timer| timer.restart(without));
        self.look_again();
        restarted
    }

    fn end(&mut self) {
        self.all_mut().for_each(|timer| timer.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_cut_where_the_timer_changes() {
        let runs = |all: &[(usize, u32)]| -> Vec<CandidateRuns> {
            all.iter().map(|&(candidate, runs)| CandidateRuns::new(candidate, runs)).collect()
        };
        let found = stretches(&runs(&[(0, 3), (2, 3), (1, 1), (3, 2), (0, 3)]), |candidate| candidate % 2);
        assert_eq!(found, [(0, runs(&[(0, 3), (2, 3)])), (1, runs(&[(1, 1), (3, 2)])), (0, runs(&[(0, 3)]))]);
        assert!(stretches(&[], |_| 0).is_empty());
    }
}
