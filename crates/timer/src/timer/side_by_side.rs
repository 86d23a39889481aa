//! Several timers on one device as one: each candidate belongs to one of them, and their runs alternate within each
//! round. So programs of two plugins, or of a plugin and of JAX, are compared as fairly as those of one.

use std::time::Duration;

use super::answers::OutputArray;
use super::events::Events;
use super::job::{Job, Prepared};
use super::model::Timer;
use super::protocol::Signature;
use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{CacheState, MeasuredBy, Metric, Source};
use crate::remedy::scratch_remedy;

/// Why timers cannot be combined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtherClock {
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
    owners: Vec<usize>,
    name: String,
    notes: Vec<String>,
}

impl SideBySide {
    /// Timers, and each candidate's timer: 0 for the first one, 1 for the first of the others. Further candidates
    /// belong to the first timer.
    ///
    /// # Errors
    /// If their devices, clocks or metrics differ.
    pub fn new(first: Box<dyn Timer>, others: Vec<Box<dyn Timer>>, owners: Vec<usize>) -> Result<Self, OtherClock> {
        for other in &others {
            let (name, other_name) = (first.name().to_owned(), other.name().to_owned());
            let (device, other_device) = (&first.device().identity, &other.device().identity);
            if device != other_device {
                let (first_device, other_device) = (device.to_string(), other_device.to_string());
                return Err(OtherClock::Device { first: name, first_device, other: other_name, other_device });
            }
            let clock = |timer: &dyn Timer| format!("{} ({})", timer.source(), timer.metric());
            let (first_clock, other_clock) = (clock(&*first), clock(&**other));
            if first_clock != other_clock || first.measures_rounds() != other.measures_rounds() {
                return Err(OtherClock::Differs { first: name, first_clock, other: other_name, other_clock });
            }
        }
        let mut both = Self { first, others, owners, name: String::new(), notes: Vec::new() };
        both.name = both.all().map(Timer::name).collect::<Vec<_>>().join(" + ");
        let mut notes: Vec<String> = Vec::new();
        for note in both.all().flat_map(Timer::notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        both.notes = notes;
        Ok(both)
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

/// Consecutive launches of one timer.
fn stretches(launches: &[(usize, u32)], owner: impl Fn(usize) -> usize) -> Vec<(usize, Vec<(usize, u32)>)> {
    let mut found: Vec<(usize, Vec<(usize, u32)>)> = Vec::new();
    for &(candidate, runs) in launches {
        match found.last_mut() {
            Some((last, stretch)) if *last == owner(candidate) => stretch.push((candidate, runs)),
            _ => found.push((owner(candidate), vec![(candidate, runs)])),
        }
    }
    found
}

impl Timer for SideBySide {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> Source {
        self.first.source()
    }

    fn metric(&self) -> Metric {
        self.first.metric()
    }

    /// The compiler names each timer with its environment, since the device only has the first one's.
    fn measured_by(&self, cache_state: &CacheState) -> MeasuredBy {
        let first = &*self.first;
        let mut by = first.measured_by(cache_state);
        self.name.clone_into(&mut by.timer);
        let compiler = |timer: &dyn Timer| {
            let own = &timer.device().environment;
            let differences = own.differences(&first.device().environment);
            let name = own.compiler().unwrap_or_else(|| timer.name().to_owned());
            // flags and drivers of another one are not part of the first device's environment
            if differences.is_empty() { name } else { format!("{name} ({})", own.xla_flags.join(" ")) }
        };
        let compilers: Vec<String> = self.all().map(compiler).collect();
        by.compiler(Some(compilers.join(" + ")))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn clocks_seen(&self) -> Option<String> {
        self.first.clocks_seen()
    }

    fn clock_resolution_ns(&self) -> Option<u64> {
        self.all().map(Timer::clock_resolution_ns).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    fn device(&self) -> &DeviceFingerprint {
        self.first.device()
    }

    fn device_count(&self) -> Option<usize> {
        self.all().map(Timer::device_count).collect::<Option<Vec<usize>>>()?.into_iter().min()
    }

    fn has_one_job_a_call(&self) -> bool {
        self.all().any(Timer::has_one_job_a_call)
    }

    fn follow(&mut self, events: &Events) {
        self.all_mut().for_each(|timer| timer.follow(events));
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        for (index, timer) in self.all_mut().enumerate() {
            // separates the files of the workers
            let scratch = job.scratch.join(format!("timer-{index}"));
            std::fs::create_dir_all(&scratch).map_err(|error| {
                let remedy = scratch_remedy(&error);
                let message = format!("`{}`: cannot be made: {error}{remedy}", scratch.display());
                Failure::new(FailureKind::Device, message)
            })?;
            timer.begin(&Job { scratch, ..job.clone() })?;
        }
        Ok(())
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<Signature>, Failure> {
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

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.of(candidate).measure(candidate, runs)
    }

    fn measure_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        self.of(candidate).measure_batches(candidate, samples, batch)
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.all_mut().for_each(|timer| timer.cut_off(longest_run));
    }

    fn measures_rounds(&self) -> bool {
        self.first.measures_rounds()
    }

    fn measure_round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        let mut durations = Vec::with_capacity(launches.len());
        for (owner, stretch) in stretches(launches, |candidate| self.owner(candidate)) {
            durations.extend(self.timer(owner).measure_round(&stretch)?);
        }
        Ok(durations)
    }

    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        self.of(candidate).outputs(candidate)
    }

    /// Grows whenever any worker is restarted.
    fn epoch(&self) -> u32 {
        self.all().map(Timer::epoch).fold(0, u32::saturating_add)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.all_mut().try_for_each(|timer| timer.restart(without))
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
        let launches = [(0, 3), (2, 3), (1, 1), (3, 2), (0, 3)];
        let found = stretches(&launches, |candidate| candidate % 2);
        assert_eq!(found, [(0, vec![(0, 3), (2, 3)]), (1, vec![(1, 1), (3, 2)]), (0, vec![(0, 3)])]);
        assert!(stretches(&[], |_| 0).is_empty());
    }
}
