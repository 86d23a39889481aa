//! Captures as timelines for other programs: Perfetto's protobuf, and Chrome's JSON.
//!
//! A plane becomes a process, a line a thread, an event a slice. Lines are read one after the other and each event is
//! written when it is read, so that what is held besides the capture is a line's open events and the names.
//!
//! Slices of one track must nest. If events of a line overlap without nesting, the later one goes to an extra track of
//! the line ([`Traced::extra_tracks`]).

mod arguments;
mod chrome;
mod export;
mod file;
mod lanes;
mod perfetto;
mod plane_names;
mod sink;

pub use export::alignment;
pub use export::{TraceFormat, TraceOptions, Traced, write_trace, write_trace_file};
pub use file::{TraceFileError, write_file};
