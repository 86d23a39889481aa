//! The timeline of a page: lanes, rows and events for the script to draw, and notes on what is left out.

use std::collections::HashMap;

use serde::Serialize;

use crate::analysis::Capture;
use crate::analysis::trace::alignment;
use crate::printable::printable;
use crate::profile::{Line, Plane, text};
use crate::timer::PHASES_PLANE;

use super::choose::{CaptureLine, ChosenEvent, choose, tracks};
use super::rows::rows;
use super::steps::steps;

/// Maximum number of events of a page.
pub const MAX_EVENTS: usize = 50_000;
/// Maximum number of characters of a name.
const MAX_NAME: usize = 240;

/// The events to draw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    pub(super) data: TimelineData,
    /// Maximum number of events that are drawn.
    pub most: usize,
    /// Events that are drawn.
    pub drawn: u64,
    /// Events left out because they end before the first step that is shown.
    pub earlier: u64,
    /// Events left out because longer ones fill the page.
    pub shorter: u64,
    /// Events left out because their lane has no row left, or the page no lane.
    pub crowded: u64,
    /// Events left out because they cannot be decoded or have no usable time.
    pub unusable: u64,
    /// Module, steps shown and steps in the capture, if some are not shown.
    pub steps: Option<(String, usize, usize)>,
}

/// The JSON data for the script. Times are in picoseconds after the window's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct TimelineData {
    pub(super) span: i64,
    /// Where the view begins and ends: what ran. What a tuning run did before its profile, and how Python started and
    /// stopped the profiler, is visible after zooming out.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) names: Vec<String>,
    pub(super) lanes: Vec<TimelineLane>,
}

/// What the first view shows before and after what ran: one part in so many.
const AROUND: i64 = 50;

/// A thread or stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct TimelineLane {
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) rows: usize,
    /// Events of this lane that are left out because longer ones fill its share of the page.
    pub(super) shorter: u64,
    /// Index of the name, start, duration and row of each event, all in one list.
    pub(super) events: Vec<i64>,
}

impl TimelineData {
    /// Where what ran begins and ends, with a little around it; without launches, where a profile's events do.
    fn shown_first(&self, ran_ps: Option<(i64, i64)>, zero_ps: i64) -> (i64, i64) {
        let (first, last) = match ran_ps {
            Some((first, last)) => {
                let around = last.saturating_sub(first) / AROUND;
                let place = |at: i64| at.saturating_sub(zero_ps);
                (place(first).saturating_sub(around), place(last).saturating_add(around))
            }
            None => {
                let own = self.lanes.iter().filter(|lane| !lane.process.ends_with(PHASES_PLANE));
                let starts = own.flat_map(|lane| lane.events.chunks_exact(4)).filter_map(|event| event.get(1));
                (starts.copied().min().unwrap_or(0), self.span)
            }
        };
        let (first, last) = (first.clamp(0, self.span), last.clamp(0, self.span));
        if first < last { (first, last) } else { (0, self.span) }
    }
}

impl Timeline {
    /// Chooses at most this many events: all of them, or those of as many of the newest steps as fit, or the longest of
    /// each lane of the newest step.
    pub fn new(captures: &[Capture], most: usize) -> Self {
        let late_ps = alignment(captures).1;
        let tracks = tracks(captures, &late_ps);
        let steps = steps(captures, &late_ps);
        let choice = choose(&tracks, &steps, most);
        let mut timeline = Self {
            most,
            earlier: choice.earlier,
            crowded: choice.crowded,
            unusable: choice.unusable,
            steps: choice.window.map(|(_, shown)| (steps.module, shown, steps.starts_ps.len())),
            ..Self::default()
        };
        let chosen = || choice.lanes.iter().flat_map(|(_, events, _)| events);
        let earliest = chosen().map(ChosenEvent::start_ps).min().unwrap_or(0);
        let zero_ps = choice.window.map_or(earliest, |(from_ps, _)| from_ps);
        timeline.data.span = (chosen().map(ChosenEvent::end_ps).max().unwrap_or(zero_ps) - zero_ps).max(1);
        let mut places = HashMap::new();
        for (place, events, shorter) in &choice.lanes {
            let Some(track) = tracks.get(*place) else { continue };
            timeline.shorter += shorter;
            timeline.add_lane(track, events, zero_ps, captures.len(), &mut places);
            if let Some(lane) = timeline.data.lanes.last_mut() {
                lane.shorter = *shorter;
            }
        }
        (timeline.data.first, timeline.data.last) = timeline.data.shown_first(steps.ran_ps, zero_ps);
        timeline
    }

    fn add_lane(
        &mut self,
        track: &CaptureLine<'_>,
        events: &[ChosenEvent],
        zero_ps: i64,
        captures: usize,
        places: &mut HashMap<String, i64>,
    ) {
        let mut lane =
            TimelineLane { process: process(track, captures), thread: thread(&track.line), ..TimelineLane::default() };
        let of_events = rows(events.iter().map(|event| (event.start_ps(), event.end_ps())));
        for (event, row) in events.iter().zip(of_events) {
            let Some(row) = row else {
                self.crowded += 1;
                continue;
            };
            let name = name(&track.plane, event.name());
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
            lane.events.extend([place, event.start_ps() - zero_ps, event.duration_ps, row as i64]);
            self.drawn += 1;
        }
        self.data.lanes.push(lane);
    }

    /// Says what is shown and what is not, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![match &self.steps {
            Some((module, shown, all)) => format!(
                "{} events: the newest {shown} of {all} steps (launches of {module}, which ran longest), and what came \
                 after.",
                self.drawn
            ),
            None => format!("{} events.", self.drawn),
        }];
        let shorter =
            format!("shorter than those drawn: a page holds {}, and the longest of each lane were kept", self.most);
        let skipped = [
            (self.earlier, "from before these steps"),
            (self.shorter, shorter.as_str()),
            (self.crowded, "beyond the limit of rows and lanes"),
            (self.unusable, "that cannot be decoded or have no usable time"),
        ];
        let skipped = skipped.iter().filter(|(count, _)| *count > 0);
        notes.extend(skipped.map(|(count, which)| format!("Left out: {count} events {which}.")));
        notes
    }
}

fn process(track: &CaptureLine<'_>, captures: usize) -> String {
    let name = track.plane.name();
    short(&if captures > 1 { format!("{}: {name}", track.capture.host()) } else { name.into_owned() })
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

/// Returns the beginning of a text.
fn short(text: &str) -> String {
    let text = printable(text);
    let mut short: String = text.chars().take(MAX_NAME).collect();
    if text.chars().nth(MAX_NAME).is_some() {
        short.push('…');
    }
    short
}
