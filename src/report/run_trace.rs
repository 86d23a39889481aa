//! `--trace-run`: the events of a run as a trace for Perfetto and Chrome.
//!
//! A slice goes to the row of its track; its fields become arguments. A dropped candidate becomes an instant slice.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::analysis::Capture;
use crate::analysis::trace::{TraceFileError, TraceFormat, TraceOptions, Traced, write_trace_file};
use crate::failure::Failure;
use crate::profile::{PlaneWriter, WrittenStat, XSpace};
use crate::timer::events::{Event, EventKind, Sink, Slice, TUNER};

/// Maximum number of slices of operations and phases, and of finer ones.
const MAX_COARSE: u64 = 100_000;
const MAX_FINE: u64 = 150_000;

/// Collects the slices of a run.
#[derive(Debug)]
pub struct RunTrace {
    plane: PlaneWriter,
    /// When the first event was, nanoseconds since 1970.
    start_ns: Option<u64>,
    rows: HashMap<String, TraceRow>,
    coarse: u64,
    fine: u64,
    skipped: u64,
}

#[derive(Debug)]
struct TraceRow {
    line: usize,
    open: Vec<OpenSlice>,
}

/// A slice that is open.
#[derive(Debug)]
struct OpenSlice {
    start_ns: i64,
    /// Its index in the line; `None` if it is left out.
    place: Option<usize>,
    fields: Vec<(&'static str, SliceField)>,
}

/// A field's value.
#[derive(Debug)]
enum SliceField {
    Int(i64),
    Text(String),
}

impl Default for RunTrace {
    fn default() -> Self {
        let plane = PlaneWriter::new("autotune-lowered");
        Self { plane, start_ns: None, rows: HashMap::new(), coarse: 0, fine: 0, skipped: 0 }
    }
}

impl RunTrace {
    /// Says how many slices were left out because there were too many.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Writes the slices that have ended so far.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, format: TraceFormat) -> Result<Traced, TraceFileError> {
        // workers begin in any order
        let bytes = self.plane.to_space_by(|row| (row != TUNER, row.to_owned()));
        let space = XSpace::from_bytes(bytes)
            .map_err(|error| TraceFileError { path: path.to_owned(), source: io::Error::other(error) })?;
        write_trace_file(&[Capture::xspace(path, "", space)], TraceOptions { format, with_stats: true }, path)
    }

    fn row(&mut self, track: &str) -> &mut TraceRow {
        let start_ns = i64::try_from(self.start_ns.unwrap_or(0)).unwrap_or(i64::MAX);
        let Self { plane, rows, .. } = self;
        rows.entry(track.to_owned()).or_insert_with(|| TraceRow { line: plane.line(track, start_ns), open: Vec::new() })
    }

    /// Opens a place in a line, if one is left for a slice of this kind.
    fn place(&mut self, line: usize, is_fine: bool) -> Option<usize> {
        let (kept, most) = if is_fine { (&mut self.fine, MAX_FINE) } else { (&mut self.coarse, MAX_COARSE) };
        if *kept >= most {
            self.skipped += 1;
            return None;
        }
        *kept += 1;
        Some(self.plane.open(line))
    }

    fn close(&mut self, line: usize, title: &str, OpenSlice { start_ns, place, fields }: &OpenSlice, end_ns: i64) {
        let Some(place) = *place else { return };
        let stats = fields.iter().map(|(name, field)| match field {
            SliceField::Int(number) => (*name, WrittenStat::Int(*number)),
            SliceField::Text(text) => (*name, WrittenStat::Text(text)),
        });
        let stats: Vec<(&str, WrittenStat<'_>)> = stats.collect();
        self.plane.close((line, place), title, (*start_ns, end_ns), &stats);
    }
}

impl Sink for RunTrace {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let first_ns = *self.start_ns.get_or_insert(event.at_ns);
        let at_ns = i64::try_from(event.at_ns.saturating_sub(first_ns)).unwrap_or(i64::MAX);
        let line = self.row(event.track).line;
        match event.kind {
            // its phases show the same
            EventKind::Begin(Slice::Job(_)) | EventKind::End(Slice::Job(_)) => {}
            EventKind::Begin(slice) => {
                let place = self.place(line, is_fine(slice));
                let fields = if place.is_some() { fields_of(slice) } else { Vec::new() };
                self.row(event.track).open.push(OpenSlice { start_ns: at_ns, place, fields });
            }
            EventKind::End(slice) => {
                if let Some(open) = self.row(event.track).open.pop() {
                    self.close(line, &slice.to_string(), &open, at_ns);
                }
            }
            EventKind::Failed { candidate, config, failure } => {
                let place = self.place(line, true);
                let fields = vec![text("config", config.as_str()), text("failure", failure)];
                let moment = OpenSlice { start_ns: at_ns, place, fields };
                self.close(line, &format!("candidate {candidate} is dropped"), &moment, at_ns);
            }
            EventKind::Contended { used, of_device } => {
                if let Some(open) = self.row(event.track).open.last_mut() {
                    let what = if of_device { "device's time of other processes" } else { "cores of other processes" };
                    open.fields.push(text(what, format_args!("{used:.2}")));
                }
            }
            EventKind::Finished { status, reason, .. } => {
                if let Some(open) = self.row(event.track).open.last_mut() {
                    open.fields = vec![text("status", status), text("reason", reason)];
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_fine(slice: &Slice<'_>) -> bool {
    matches!(slice, Slice::Detail(_) | Slice::Round { .. } | Slice::Candidate { .. } | Slice::Compile { .. })
}

fn text(name: &'static str, text: impl ToString) -> (&'static str, SliceField) {
    (name, SliceField::Text(text.to_string()))
}

fn number(name: &'static str, number: usize) -> (&'static str, SliceField) {
    (name, SliceField::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn fields_of(slice: &Slice<'_>) -> Vec<(&'static str, SliceField)> {
    match slice {
        Slice::Search { strategy, configs, .. } => vec![text("strategy", strategy), number("configs", *configs)],
        Slice::Try { config, .. } | Slice::Candidate { config: Some(config), .. } => {
            vec![text("config", config.as_str())]
        }
        Slice::Round { contenders, .. } => vec![number("contenders", *contenders)],
        Slice::Compile { operation, config, .. } => {
            vec![text("operation", operation), text("config", config.as_str())]
        }
        Slice::Restart(reason) => vec![text("reason", reason)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::timer::events::Events;

    /// Checks that an endless run uses bounded memory, and its operations are still recorded.
    #[test]
    fn so_many_slices_are_kept_and_the_rest_is_counted() {
        let trace = Arc::new(Mutex::new(RunTrace::default()));
        let events = Events::by(|| 0).and(trace.clone());
        for number in 0..MAX_FINE + 2 {
            drop(events.open(Slice::Round { number, contenders: 1 }));
        }
        drop(events.open(Slice::Operation { name: "operation", index: 0, of: 1 }));
        let trace = trace.lock().unwrap();
        assert_eq!(trace.skipped(), 2);
        let folder = tempfile::tempdir().unwrap();
        let traced = trace.write(&folder.path().join("run.pftrace"), TraceFormat::Perfetto).unwrap();
        assert_eq!((traced.slices, traced.threads), (MAX_FINE + 1, 1));
    }

    #[test]
    fn a_contended_round_says_how_many_cores_others_used() {
        let trace = Arc::new(Mutex::new(RunTrace::default()));
        let events = Events::by(|| 0).and(trace.clone());
        for number in 0..2 {
            let round = events.open(Slice::Round { number, contenders: 2 });
            if number == 1 {
                events.tell(EventKind::Contended { used: 1.5, of_device: false });
            }
            drop(round);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        trace.lock().unwrap().write(&file, TraceFormat::Chrome).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        let rounds: Vec<&str> = text.lines().filter(|line| line.contains("\"contenders\"")).collect();
        assert!(rounds.len() == 2 && rounds[1].contains("\"cores of other processes\":\"1.50\""), "{text}");
        assert!(!rounds[0].contains("cores of other processes"), "{text}");
    }
}
