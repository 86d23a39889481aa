//! ejkernel's `Profiler`: seconds by event name, and their statistics by function id.
//!
//! [`Semantics::Ejkernel`] does what ejkernel 0.0.80 does (`ejkernel/profiler.py`, `Profiler.get_events_from_plane`),
//! with everything that makes its numbers unfit for decisions: for a repeated name only the last event counts, events
//! are compared by their offsets even where their lines begin at different times, children are searched in every line
//! of the plane, and after `max_events` nothing more is read. [`Semantics::PerExecution`] takes each module execution
//! as one sample and says what it leaves out.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::Regex;

use super::finding::Finding;
use super::space::{Plane, XSpace};

/// What to read from a profile; the defaults are ejkernel's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Profiler {
    /// Only names that start so; empty for all.
    pub prefix_filter: String,
    /// Only time of children whose names match is counted.
    pub event_filter_regex: Option<Regex>,
    /// Shorter samples are left out.
    pub min_duration_ns: f64,
    /// Maximum number of samples per plane; of events, in ejkernel's semantics. The mode with a sample for each
    /// execution takes all if this is left at ejkernel's default.
    pub max_events_per_profile: Option<usize>,
    /// The semantics of the numbers.
    pub semantics: Semantics,
}

/// The semantics of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Semantics {
    /// ejkernel's, errors included.
    Ejkernel,
    /// Every execution is a sample.
    PerExecution,
}

/// ejkernel's cap on the events of a profile.
pub const EJKERNEL_MAX_EVENTS: usize = 10_000;

impl Default for Profiler {
    fn default() -> Self {
        Self::new(Semantics::PerExecution)
    }
}

/// The samples of one profile.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Timings {
    /// Seconds of each sample by `name(program_id-scope_range_id)`, in order of time; in ejkernel's semantics one of
    /// each.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// The same, with the devices apart; ejkernel knows no devices.
    pub by_device: BTreeMap<(String, Option<i64>), Vec<f64>>,
    /// Counts of what was left out.
    pub dropped: Dropped,
}

/// What was left out of the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Dropped {
    /// Shorter than the least duration.
    pub too_short: u64,
    /// Beyond the cap.
    pub beyond_cap: u64,
    /// Overwritten by a later event of the same name.
    pub overwritten: u64,
}

impl Dropped {
    /// Adds another profile's.
    pub fn add(&mut self, other: Self) {
        self.too_short += other.too_short;
        self.beyond_cap += other.beyond_cap;
        self.overwritten += other.overwritten;
    }
}

impl Profiler {
    /// ejkernel's defaults; the mode with a sample for each execution has no cap unless one is given.
    pub fn new(semantics: Semantics) -> Self {
        Self {
            prefix_filter: "jit_".to_owned(),
            event_filter_regex: None,
            min_duration_ns: 1000.0,
            max_events_per_profile: (semantics == Semantics::Ejkernel).then_some(EJKERNEL_MAX_EVENTS),
            semantics,
        }
    }

    /// The planes whose names contain this, in any case.
    pub fn find_device_planes<'a>(space: &'a XSpace, device: &str) -> Vec<Plane<'a>> {
        let wanted = device.to_lowercase();
        space.planes().filter(|plane| plane.name().to_lowercase().contains(&wanted)).collect()
    }

    pub(super) fn min_duration_ps(&self) -> i64 {
        // a cast saturates, and truncates as Python's `int` does
        (self.min_duration_ns * 1000.0) as i64
    }
}

/// Mean and standard deviation of one function's samples, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct FunctionTime {
    /// Mean of the samples kept.
    pub mean: f64,
    /// Their standard deviation, as of a whole population.
    pub std: f64,
    /// Samples kept: if there are more than two, the lowest and the highest are removed.
    pub n: usize,
}

/// Mean and deviation of each function `jit_autotune_fn_{id}` over several profiles.
pub fn function_times(profiles: &[Timings]) -> BTreeMap<u64, FunctionTime> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (id, seconds) in profiles.iter().flat_map(functions) {
        all.entry(id).or_default().extend(seconds);
    }
    all.into_iter().map(|(id, samples)| (id, function_time(samples))).collect()
}

fn functions(timings: &Timings) -> impl Iterator<Item = (u64, &Vec<f64>)> {
    timings.samples.iter().filter_map(|(name, seconds)| {
        let rest = name.strip_prefix("jit_autotune_fn_")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| rest.get(..end).unwrap_or_default());
        Some((digits.parse().ok()?, seconds))
    })
}

fn function_time(mut samples: Vec<f64>) -> FunctionTime {
    samples.sort_by(f64::total_cmp);
    let kept = match samples.as_slice() {
        [_, kept @ .., _] if !kept.is_empty() => kept,
        all => all,
    };
    let n = kept.len() as f64;
    let mean = kept.iter().sum::<f64>() / n;
    let squares = kept.iter().map(|sample| (sample - mean).powi(2));
    FunctionTime { mean, std: (squares.sum::<f64>() / n).sqrt(), n: kept.len() }
}

/// Findings from the samples: functions of which some profile has no sample.
pub fn missing_functions(profiles: &[Timings]) -> Vec<Finding> {
    let all: Vec<BTreeSet<u64>> =
        profiles.iter().map(|timings| functions(timings).map(|(id, _)| id).collect()).collect();
    let union: BTreeSet<u64> = all.iter().flatten().copied().collect();
    let missing = union.into_iter().filter_map(|id| {
        let without = all.iter().filter(|ids| !ids.contains(&id)).count() as u64;
        (without > 0).then_some(Finding::FunctionMissing { function: id, profiles: without })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_and_highest_go_where_there_are_more_than_two() {
        // numpy: np.mean and np.std of [2, 4]
        assert_eq!(function_time(vec![4.0, 100.0, 1.0, 2.0]), FunctionTime { mean: 3.0, std: 1.0, n: 2 });
        assert_eq!(function_time(vec![3.0, 1.0]), FunctionTime { mean: 2.0, std: 1.0, n: 2 });
        assert_eq!(function_time(vec![5.0, 1.0, 3.0]), FunctionTime { mean: 3.0, std: 0.0, n: 1 });
        assert_eq!(function_time(vec![7.0]), FunctionTime { mean: 7.0, std: 0.0, n: 1 });
    }

    #[test]
    fn functions_are_found_by_their_number() {
        let samples =
            [("jit_autotune_fn_3(10-None)", 1.0), ("jit_autotune_fn_12x(4-None)", 2.0), ("jit_other(1-None)", 9.0)];
        let timings = Timings {
            samples: samples.map(|(name, seconds)| (name.to_owned(), vec![seconds])).into(),
            ..Timings::default()
        };
        let found = function_times(&[timings.clone(), timings.clone()]);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [3, 12]);
        assert_eq!(found[&12], FunctionTime { mean: 2.0, std: 0.0, n: 2 });
        assert!(missing_functions(&[timings.clone(), timings.clone()]).is_empty());
        assert_eq!(missing_functions(&[timings, Timings::default()]).len(), 2);
    }
}
