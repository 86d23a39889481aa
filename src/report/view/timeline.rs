//! Which events a page's timeline shows: those of the newest steps, the longest where they are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde::Serialize;

use crate::analysis::trace::alignment;
use crate::profile::{Capture, Event, Line, Plane, text};

use super::rows::rows;
use super::steps::{Steps, steps};

/// Most events of a page.
pub const MAX_EVENTS: usize = 50_000;
/// Most lanes of a page.
const MAX_LANES: usize = 300;
/// Most characters of a name.
const MAX_NAME: usize = 240;
/// Times beyond this are damage: 26 days.
const MAX_PS: i64 = 1 << 61;

/// The events to draw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    pub(super) data: Data,
    /// The most events that are drawn.
    pub most: usize,
    /// Events that are drawn.
    pub drawn: u64,
    /// Events left out since they end before the first step that is shown.
    pub earlier: u64,
    /// Events left out since longer ones fill the page.
    pub shorter: u64,
    /// Events left out since their lane has no row left, or the page no lane.
    pub crowded: u64,
    /// Events left out since they cannot be decoded or have no usable time.
    pub unusable: u64,
    /// Module, steps shown and steps in the capture, where not all of it is shown.
    pub steps: Option<(String, usize, usize)>,
}

/// What the script finds in the page; times in picoseconds after the window's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Data {
    pub(super) span: i64,
    pub(super) names: Vec<String>,
    pub(super) lanes: Vec<Lane>,
}

/// A thread or stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Lane {
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) rows: usize,
    /// Place of the name, start, duration and row of each event, one after the other.
    pub(super) events: Vec<i64>,
}

/// An event that may be drawn; the longest is the greatest, and of equals the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    duration_ps: i64,
    start_ps: Reverse<i64>,
    lane: Reverse<usize>,
    name: Reverse<i64>,
}

impl Candidate {
    fn end_ps(&self) -> i64 {
        self.start_ps.0 + self.duration_ps
    }
}

/// All lines of all captures, each with its plane, its capture, and how much later that one begins.
fn lines<'a>(
    captures: &'a [Capture],
    late_ps: &'a [Option<i64>],
) -> impl Iterator<Item = (&'a Capture, Option<i64>, Plane<'a>, Line<'a>)> {
    captures.iter().zip(late_ps).flat_map(|(capture, late_ps)| {
        let planes = capture.space.planes();
        planes.flat_map(move |plane| plane.lines().map(move |line| (capture, *late_ps, plane, line)))
    })
}

/// Start and end.
fn times(line: &Line<'_>, event: &Event<'_>, late_ps: Option<i64>) -> Option<(i64, i64)> {
    if event.num_occurrences.is_some() || event.duration_ps < 0 {
        return None;
    }
    let start_ps = line.start_ps(event)?.checked_add(late_ps?)?;
    let end_ps = start_ps.checked_add(event.duration_ps)?;
    (start_ps >= -MAX_PS && end_ps <= MAX_PS).then_some((start_ps, end_ps))
}

impl Timeline {
    /// Chooses at most so many events: all, or those of as many of the newest steps as fit, or the longest of the newest step.
    pub fn new(captures: &[Capture], most: usize) -> Self {
        let late_ps = alignment(captures).1;
        let steps = steps(captures, &late_ps);
        let mut timeline = Self { most, ..Self::default() };
        let first = timeline.first_step(captures, &late_ps, &steps, most);
        let window_ps = first.and_then(|first| steps.starts_ps.get(first)).copied();
        if let Some(first) = first {
            timeline.steps = Some((steps.module, steps.starts_ps.len() - first, steps.starts_ps.len()));
        }
        let chosen = timeline.longest(captures, &late_ps, window_ps, most);
        timeline.fill(captures, &late_ps, window_ps, chosen);
        timeline
    }

    /// The step to begin with; `None` where all is shown, or there is no step.
    fn first_step(
        &mut self,
        captures: &[Capture],
        late_ps: &[Option<i64>],
        steps: &Steps,
        most: usize,
    ) -> Option<usize> {
        // by how many of the steps an event would be shown with
        let mut counts = vec![0_u64; steps.starts_ps.len() + 1];
        for (_, late_ps, _, line) in lines(captures, late_ps) {
            for event in line.events() {
                let Some((start_ps, end_ps)) = event.ok().and_then(|event| times(&line, &event, late_ps)) else {
                    self.unusable += 1;
                    continue;
                };
                let shown_with = steps.starts_ps.partition_point(|&from| is_after(start_ps, end_ps, from));
                if let Some(count) = counts.get_mut(shown_with) {
                    *count += 1;
                }
            }
        }
        let most = most as u64;
        if counts.iter().sum::<u64>() <= most {
            return None;
        }
        let mut events = 0;
        let fitting = counts.iter().skip(1).rev().take_while(|&&count| {
            events += count;
            events <= most
        });
        let fitting = fitting.count().max(1);
        steps.starts_ps.len().checked_sub(fitting)
    }

    /// The longest events of the window.
    fn longest(
        &mut self,
        captures: &[Capture],
        late_ps: &[Option<i64>],
        window_ps: Option<i64>,
        most: usize,
    ) -> Vec<Candidate> {
        let mut kept: BinaryHeap<Reverse<Candidate>> = BinaryHeap::new();
        for (lane, (_, late_ps, _, line)) in lines(captures, late_ps).enumerate() {
            for event in line.events().filter_map(Result::ok) {
                let Some((start_ps, end_ps)) = times(&line, &event, late_ps) else { continue };
                if window_ps.is_some_and(|from| !is_after(start_ps, end_ps, from)) {
                    self.earlier += 1;
                    continue;
                }
                kept.push(Reverse(Candidate {
                    duration_ps: event.duration_ps,
                    start_ps: Reverse(start_ps),
                    lane: Reverse(lane),
                    name: Reverse(event.metadata_id),
                }));
                if kept.len() > most {
                    kept.pop();
                    self.shorter += 1;
                }
            }
        }
        kept.into_iter().map(|Reverse(candidate)| candidate).collect()
    }

    fn fill(&mut self, captures: &[Capture], late_ps: &[Option<i64>], window_ps: Option<i64>, chosen: Vec<Candidate>) {
        let earliest = chosen.iter().map(|candidate| candidate.start_ps.0).min().unwrap_or(0);
        let zero_ps = window_ps.unwrap_or(earliest);
        let last_ps = chosen.iter().map(Candidate::end_ps).max().unwrap_or(zero_ps);
        self.data.span = (last_ps - zero_ps).max(1);
        let mut by_lane: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
        for candidate in chosen {
            by_lane.entry(candidate.lane.0).or_default().push(candidate);
        }
        let mut places: HashMap<String, i64> = HashMap::new();
        for (number, (capture, _, plane, line)) in lines(captures, late_ps).enumerate() {
            let Some(mut events) = by_lane.remove(&number) else { continue };
            if self.data.lanes.len() == MAX_LANES {
                self.crowded += events.len() as u64;
                continue;
            }
            events.sort_by_key(|event| (event.start_ps.0, Reverse(event.duration_ps), event.name));
            let of_events = rows(events.iter().map(|event| (event.start_ps.0, event.end_ps())));
            let mut lane = Lane {
                process: process(capture, &plane, captures.len()),
                thread: thread(&line),
                rows: 0,
                events: Vec::new(),
            };
            for (event, row) in events.iter().zip(of_events) {
                let Some(row) = row else {
                    self.crowded += 1;
                    continue;
                };
                let name = name(&plane, event.name.0);
                let place = match places.get(&name) {
                    Some(place) => *place,
                    None => {
                        let place = self.data.names.len() as i64;
                        self.data.names.push(name.clone());
                        places.insert(name, place);
                        place
                    }
                };
                lane.rows = lane.rows.max(row + 1);
                lane.events.extend([place, event.start_ps.0 - zero_ps, event.duration_ps, row as i64]);
                self.drawn += 1;
            }
            self.data.lanes.push(lane);
        }
    }

    /// What is shown and what is not, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![match &self.steps {
            Some((module, shown, all)) => format!(
                "{} events: the newest {shown} of {all} steps (launches of {module}, which ran longest), and what came after.",
                self.drawn
            ),
            None => format!("{} events.", self.drawn),
        }];
        let shorter = format!("shorter than those drawn: a page holds {}, and the longest were kept", self.most);
        let left_out = [
            (self.earlier, "that ended before these steps"),
            (self.shorter, shorter.as_str()),
            (self.crowded, "for which no row or lane is left"),
            (self.unusable, "that cannot be decoded or have no usable time"),
        ];
        let left_out = left_out.iter().filter(|(count, _)| *count > 0);
        notes.extend(left_out.map(|(count, which)| format!("Left out: {count} events {which}.")));
        notes
    }
}

/// Whether an event is part of what follows a moment.
fn is_after(start_ps: i64, end_ps: i64, from_ps: i64) -> bool {
    end_ps > from_ps || start_ps >= from_ps
}

fn process(capture: &Capture, plane: &Plane<'_>, captures: usize) -> String {
    let name = plane.name();
    short(&if captures > 1 { format!("{}: {name}", capture.host) } else { name.into_owned() })
}

fn thread(line: &Line<'_>) -> String {
    match (line.display_name(), line.name()) {
        (shown, _) if !shown.is_empty() => short(&shown),
        (_, name) if !name.is_empty() => short(&name),
        _ => format!("line {}", line.id()),
    }
}

fn name(plane: &Plane<'_>, id: i64) -> String {
    plane.event_metadata(id).map_or_else(
        || "(no metadata)".to_owned(),
        |metadata| match metadata.display_name() {
            [] => short(&text(metadata.name())),
            shown => short(&text(shown)),
        },
    )
}

/// The beginning of a text, without what turns the direction of letters.
fn short(text: &str) -> String {
    let is_unfit = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut short: String = text.chars().take(MAX_NAME).map(|c| if is_unfit(c) { ' ' } else { c }).collect();
    if text.chars().nth(MAX_NAME).is_some() {
        short.push('…');
    }
    short
}
