//! `--trace-run`: what the tuner did and when, from the spans of [`SPANS`], as a trace that Perfetto and Chrome open.
//!
//! A span becomes a slice when it closes, on the row of the thread that it began on or of the `track` that it or an outer one names.
//! Its fields become arguments. An event becomes a slice that takes no time.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::analysis::Capture;
use crate::analysis::trace::{TraceFileError, TraceFormat, TraceOptions, Traced, write_file, write_trace};
use crate::profile::{PlaneWriter, WrittenStat, XSpace};
use crate::timer::SPANS;

/// The most slices of operations and phases that are kept, and of what is finer.
const MAX_COARSE: u64 = 100_000;
const MAX_FINE: u64 = 150_000;

/// The row of the thread that the program began with.
const TUNER: &str = "tuner";

/// Collects the spans of a run; clones share them.
#[derive(Clone)]
pub struct RunTrace(Arc<Shared>);

struct Shared {
    /// Nanoseconds since 1970.
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    start_ns: u64,
    state: Mutex<State>,
}

struct State {
    plane: PlaneWriter,
    rows: HashMap<String, usize>,
    coarse: u64,
    fine: u64,
    left_out: u64,
}

/// A span that is open.
struct Open {
    start_ns: u64,
    row: usize,
    /// Its place there; none where it is left out.
    place: Option<usize>,
    fields: Fields,
}

/// A field's value.
enum Value {
    Int(i64),
    Text(String),
}

/// What a span or an event says.
#[derive(Default)]
struct Fields {
    title: Option<String>,
    track: Option<String>,
    arguments: Vec<(&'static str, Value)>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("title", Value::Text(title)) => self.title = Some(title),
            ("track", Value::Text(track)) => self.track = Some(track),
            (name, value) => self.arguments.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, Value::Text(format!("{value:?}")));
    }
}

impl RunTrace {
    /// A trace that begins now by this clock, which gives nanoseconds since 1970 and never goes back.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let (start_ns, plane) = (clock(), PlaneWriter::new("autotune-lowered"));
        let state = State { plane, rows: HashMap::new(), coarse: 0, fine: 0, left_out: 0 };
        Self(Arc::new(Shared { clock: Box::new(clock), start_ns, state: Mutex::new(state) }))
    }

    /// A trace that begins now: the calendar's time, and from there a clock that is never set.
    pub fn begin() -> Self {
        let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let since_1970 = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let begin = Instant::now();
        Self::new(move || since_1970.saturating_add(nanoseconds(begin.elapsed())))
    }

    /// What a subscriber takes to feed it: the run's spans and nothing else.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        self.clone().with_filter(filter_fn(|metadata| metadata.target() == SPANS))
    }

    /// How many slices were left out because so many were there.
    pub fn left_out(&self) -> u64 {
        self.0.lock().left_out
    }

    /// Writes what has ended until now.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, path: &Path, format: TraceFormat) -> Result<Traced, TraceFileError> {
        // workers begin in any order
        let bytes = self.0.lock().plane.to_space_by(|row| (row != TUNER, row.to_owned()));
        let is_gzip = format == TraceFormat::Chrome && path.extension().is_some_and(|extension| extension == "gz");
        write_file(path, is_gzip, |out| {
            let space = XSpace::from_bytes(bytes).map_err(io::Error::other)?;
            let captures = [Capture::xspace(path, "", space)];
            write_trace(&captures, TraceOptions { format, with_stats: true }, out)
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        (self.clock)().saturating_sub(self.start_ns)
    }

    fn row(&self, name: &str) -> usize {
        let mut state = self.lock();
        let State { plane, rows, .. } = &mut *state;
        match rows.get(name) {
            Some(&row) => row,
            None => {
                let row = plane.line(name, i64::try_from(self.start_ns).unwrap_or(i64::MAX));
                rows.insert(name.to_owned(), row);
                row
            }
        }
    }

    /// The row of the thread at hand; the first one is the tuner's.
    fn row_of_thread(&self) -> usize {
        let thread = std::thread::current();
        self.row(thread.name().filter(|name| *name != "main").unwrap_or(TUNER))
    }

    /// A place in a row, where there is one left for a slice of this kind.
    fn open(&self, metadata: &Metadata<'_>, row: usize) -> Option<usize> {
        let mut state = self.lock();
        let is_fine = *metadata.level() > Level::INFO;
        let (kept, most) = if is_fine { (&mut state.fine, MAX_FINE) } else { (&mut state.coarse, MAX_COARSE) };
        if *kept >= most {
            state.left_out += 1;
            return None;
        }
        *kept += 1;
        Some(state.plane.open(row))
    }

    fn close(&self, metadata: &Metadata<'_>, Open { start_ns, row, place, fields }: &Open, end_ns: u64) {
        let Some(place) = *place else { return };
        let arguments: Vec<(&str, WrittenStat<'_>)> = fields
            .arguments
            .iter()
            .map(|(name, value)| match value {
                Value::Int(value) => (*name, WrittenStat::Int(*value)),
                Value::Text(text) => (*name, WrittenStat::Text(text)),
            })
            .collect();
        let at = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let title = fields.title.as_deref().unwrap_or(metadata.name());
        self.lock().plane.close((*row, place), title, (at(*start_ns), at(end_ns)), &arguments);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RunTrace {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let start_ns = self.0.now_ns();
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let outer = || span.parent()?.extensions().get::<Open>().map(|open| open.row);
        let row = match &fields.track {
            Some(track) => self.0.row(track),
            None => outer().unwrap_or_else(|| self.0.row_of_thread()),
        };
        let place = self.0.open(attributes.metadata(), row);
        span.extensions_mut().insert(Open { start_ns, row, place, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let now_ns = self.0.now_ns();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let outer = || context.event_span(event)?.extensions().get::<Open>().map(|open| open.row);
        let row = outer().unwrap_or_else(|| self.0.row_of_thread());
        let place = self.0.open(event.metadata(), row);
        self.0.close(event.metadata(), &Open { start_ns: now_ns, row, place, fields }, now_ns);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let end_ns = self.0.now_ns();
        let Some(span) = context.span(&id) else { return };
        if let Some(open) = span.extensions_mut().remove::<Open>() {
            self.0.close(span.metadata(), &open, end_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A run that goes on for ever fills its own memory no more than so far, and its operations are still told then.
    #[test]
    fn so_many_slices_are_kept_and_the_rest_is_counted() {
        let trace = RunTrace::new(|| 0);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(trace.layer()), || {
            for _ in 0..MAX_FINE + 2 {
                tracing::debug_span!(target: SPANS, "candidate").in_scope(|| ());
            }
            tracing::info_span!(target: SPANS, "operation").in_scope(|| ());
            tracing::info_span!("another's").in_scope(|| ());
        });
        assert_eq!(trace.left_out(), 2);
        let folder = tempfile::tempdir().unwrap();
        let traced = trace.write(&folder.path().join("run.pftrace"), TraceFormat::Perfetto).unwrap();
        assert_eq!((traced.slices, traced.threads), (MAX_FINE + 1, 1));
    }
}
