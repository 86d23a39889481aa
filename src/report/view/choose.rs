//! Chooses the events of a page's timeline: the lanes with the most time, in them the newest steps, and of too many
//! events the longest of each lane. The limit applies to each lane, so that a lane of many short events is not empty
//! beside one of few long ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use crate::analysis::Capture;
use crate::profile::{Event, Line, Plane};

use super::steps::ModuleSteps;

/// Maximum number of lanes of a page.
pub(super) const MAX_LANES: usize = 300;
/// Larger times are damaged: 26 days.
const MAX_PS: i64 = 1 << 61;

/// A line of a capture.
pub(super) struct CaptureLine<'a> {
    pub(super) capture: &'a Capture,
    pub(super) plane: Plane<'a>,
    pub(super) line: Line<'a>,
    /// How much later its capture begins than the first.
    late_ps: Option<i64>,
}

/// An event that is drawn. The longest is the greatest; of equal ones, the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChosenEvent {
    pub(super) duration_ps: i64,
    start: Reverse<i64>,
    name: Reverse<i64>,
}

impl ChosenEvent {
    pub(super) fn start_ps(&self) -> i64 {
        self.start.0
    }

    pub(super) fn end_ps(&self) -> i64 {
        self.start.0 + self.duration_ps
    }

    pub(super) fn name(&self) -> i64 {
        self.name.0
    }
}

/// The choice from all lines.
#[derive(Default)]
pub(super) struct ChosenEvents {
    /// Places of the lines in the order of the captures, with their events by start and the number of shorter ones that
    /// were left out.
    pub(super) lanes: Vec<(usize, Vec<ChosenEvent>, u64)>,
    /// The start of the window and the number of newest steps in it; `None` if everything is shown.
    pub(super) window: Option<(i64, usize)>,
    /// Events before the window.
    pub(super) earlier: u64,
    /// Events of lines that got no lane.
    pub(super) crowded: u64,
    /// Events that cannot be decoded or have no usable time.
    pub(super) unusable: u64,
}

/// Returns all lines of all captures.
pub(super) fn tracks<'a>(captures: &'a [Capture], late_ps: &[Option<i64>]) -> Vec<CaptureLine<'a>> {
    let of_capture = |(capture, late_ps): (&'a Capture, &Option<i64>)| {
        let late_ps = *late_ps;
        let of_plane =
            move |plane: Plane<'a>| plane.lines().map(move |line| CaptureLine { capture, plane, line, late_ps });
        capture.timeline().planes().flat_map(of_plane)
    };
    captures.iter().zip(late_ps).flat_map(of_capture).collect()
}

impl CaptureLine<'_> {
    /// Returns start and end.
    fn times(&self, event: &Event<'_>) -> Option<(i64, i64)> {
        if event.num_occurrences.is_some() || event.duration_ps < 0 {
            return None;
        }
        let start_ps = self.line.start_ps(event)?.checked_add(self.late_ps?)?;
        let end_ps = start_ps.checked_add(event.duration_ps)?;
        (start_ps >= -MAX_PS && end_ps <= MAX_PS).then_some((start_ps, end_ps))
    }

    /// Folds all events, in pieces on several threads.
    fn fold<T: Send>(
        &self,
        new: impl Fn() -> T + Send + Sync,
        add: impl Fn(&mut T, Option<(i64, i64)>) + Send + Sync,
        join: impl Fn(T, T) -> T + Send + Sync,
    ) -> T {
        let chunks: Vec<_> = self.line.chunks().collect();
        let folded = chunks.into_par_iter().fold(&new, |mut sum, chunk| {
            for event in chunk.events() {
                add(&mut sum, event.ok().and_then(|event| self.times(&event)));
            }
            sum
        });
        folded.reduce(&new, join)
    }

    /// Counts how many events belong to the time after a moment.
    fn count_from(&self, from_ps: i64) -> u64 {
        let add = |count: &mut u64, times: Option<(i64, i64)>| {
            *count += u64::from(times.is_some_and(|times| is_after(times, from_ps)));
        };
        self.fold(|| 0, add, |one, other| one + other)
    }

    /// Returns the longest events of the window, ordered by start.
    fn longest(&self, from_ps: Option<i64>, most: usize) -> Vec<ChosenEvent> {
        let mut kept: BinaryHeap<Reverse<ChosenEvent>> = BinaryHeap::new();
        for event in self.line.events().filter_map(Result::ok) {
            let Some(times) = self.times(&event) else { continue };
            if from_ps.is_none_or(|from_ps| is_after(times, from_ps)) {
                let (start, name) = (Reverse(times.0), Reverse(event.metadata_id));
                kept.push(Reverse(ChosenEvent { duration_ps: event.duration_ps, start, name }));
                if kept.len() > most {
                    kept.pop();
                }
            }
        }
        let mut chosen: Vec<ChosenEvent> = kept.into_iter().map(|Reverse(chosen)| chosen).collect();
        chosen.sort_unstable_by_key(|event| (event.start_ps(), Reverse(event.duration_ps), event.name()));
        chosen
    }
}

/// Chooses at most this many events.
pub(super) fn choose(tracks: &[CaptureLine<'_>], steps: &ModuleSteps, most: usize) -> ChosenEvents {
    // of each line: its events, its unusable events, and its total time
    type LaneSum = (u64, u64, u128);
    let add = |sum: &mut LaneSum, times: Option<(i64, i64)>| match times {
        Some((start, end)) => *sum = (sum.0 + 1, sum.1, sum.2 + end.abs_diff(start) as u128),
        None => sum.1 += 1,
    };
    let join = |one: LaneSum, other: LaneSum| (one.0 + other.0, one.1 + other.1, one.2 + other.2);
    let sums: Vec<LaneSum> = tracks.par_iter().map(|track| track.fold(|| (0, 0, 0), add, join)).collect();
    let mut choice = ChosenEvents { unusable: sums.iter().map(|sum| sum.1).sum(), ..ChosenEvents::default() };
    let mut lanes: Vec<usize> = (0..tracks.len()).filter(|&lane| sums.get(lane).is_some_and(|sum| sum.0 > 0)).collect();
    let count_of = |lane: &usize| sums.get(*lane).map_or(0, |sum| sum.0);
    if lanes.len() > MAX_LANES {
        lanes.sort_by_key(|&lane| Reverse(sums.get(lane).map(|sum| sum.2)));
        choice.crowded = lanes.iter().skip(MAX_LANES).map(count_of).sum();
        lanes.truncate(MAX_LANES);
        lanes.sort_unstable();
    }
    let lanes: Vec<(usize, &CaptureLine<'_>)> =
        lanes.iter().filter_map(|&lane| Some((lane, tracks.get(lane)?))).collect();

    let all: u64 = lanes.iter().map(|(lane, _)| count_of(lane)).sum();
    choice.window = if all > most as u64 { window(&lanes, steps, most as u64) } else { None };
    let from_ps = choice.window.map(|(from_ps, _)| from_ps);
    let counts: Vec<u64> = match from_ps {
        Some(from_ps) => lanes.par_iter().map(|(_, track)| track.count_from(from_ps)).collect(),
        None => lanes.iter().map(|(lane, _)| count_of(lane)).collect(),
    };
    choice.earlier = all - counts.iter().sum::<u64>();
    let quota = fair(&counts, most as u64);
    let of_lane = |((lane, track), count): (&(usize, &CaptureLine<'_>), &u64)| {
        let chosen = track.longest(from_ps, usize::try_from(quota).unwrap_or(usize::MAX));
        let shorter = count - chosen.len() as u64;
        (*lane, chosen, shorter)
    };
    let of_lanes = lanes.par_iter().zip(&counts).filter(|(_, count)| **count > 0).map(of_lane);
    choice.lanes = of_lanes.collect();
    choice
}

/// Returns as many of the newest steps as fit, and at least the newest: their start and their number.
fn window(lanes: &[(usize, &CaptureLine<'_>)], steps: &ModuleSteps, most: u64) -> Option<(i64, usize)> {
    let starts = &steps.starts_ps;
    // by the number of steps that are needed to show an event
    let add = |counts: &mut Vec<u64>, times: Option<(i64, i64)>| {
        let Some(times) = times else { return };
        if let Some(count) = counts.get_mut(starts.partition_point(|&from_ps| is_after(times, from_ps))) {
            *count += 1;
        }
    };
    let join = |mut one: Vec<u64>, other: Vec<u64>| {
        one.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        one
    };
    let new = || vec![0; starts.len() + 1];
    let counts = lanes.iter().map(|(_, track)| track.fold(new, add, join)).fold(new(), join);
    let mut events = 0;
    let fitting = counts.iter().skip(1).rev().take_while(|&&count| {
        events += count;
        events <= most
    });
    let fitting = fitting.count().max(1);
    let first = starts.len().checked_sub(fitting)?;
    Some((*starts.get(first)?, fitting))
}

/// Returns the maximum number of events per lane, so that all together are at most `most`. Lanes with few events leave
/// their share to the others.
fn fair(counts: &[u64], most: u64) -> u64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let mut left = most;
    for (place, count) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - place) as u64;
        if *count > share {
            return share;
        }
        left -= count;
    }
    u64::MAX
}

/// Says whether an event is part of what follows a moment.
fn is_after((start_ps, end_ps): (i64, i64), from_ps: i64) -> bool {
    end_ps > from_ps || start_ps >= from_ps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_what_others_leave() {
        // by hand: 10 leaves 90 for two, of which each gets 45
        assert_eq!(fair(&[1000, 10, 500], 100), 45);
        assert_eq!(fair(&[10, 20, 30], 60), u64::MAX);
        assert_eq!((fair(&[10, 20, 30], 59), fair(&[5], 4), fair(&[], 4)), (29, 4, u64::MAX));
        for most in 0..40 {
            let (counts, quota) = ([3, 9, 0, 14, 2], fair(&[3, 9, 0, 14, 2], most));
            assert!(counts.iter().map(|&count: &u64| count.min(quota)).sum::<u64>() <= most);
        }
    }
}
