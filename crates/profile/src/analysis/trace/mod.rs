//! Captures as timelines for other programs: Perfetto's protobuf, and Chrome's JSON.
//!
//! A plane becomes a process, a line a thread, an event a slice. Lines are read one after the other and each event is
//! written when it is read, so that what is held besides the capture is a line's open events and the names.
//!
//! Slices of one track must nest. If events of a line overlap without nesting, the later one goes to an extra track of
//! the line ([`Traced::extra_tracks`]).
//!
//! ```
//! use autotune_lowered_profile::analysis::Capture;
//! use autotune_lowered_profile::analysis::trace::{TraceFormat, TraceOptions, write_trace};
//! use autotune_lowered_profile::profile::{PlaneWriter, XSpace};
//!
//! let mut plane = PlaneWriter::new("/device:GPU:0");
//! let line = plane.line("Stream #1", 1_000);
//! plane.event(line, "fusion.1", (0, 40), &[]);
//! plane.event(line, "fusion.2", (40, 100), &[]);
//! let space = XSpace::from_bytes(plane.to_space())?;
//! let mut json = Vec::new();
//! let captures = [Capture::xspace("run.xplane.pb", "host", space)];
//! let traced = write_trace(&captures, TraceOptions::new(TraceFormat::Chrome), &mut json)?;
//! assert_eq!((traced.processes, traced.threads, traced.slices), (1, 1, 2));
//! let trace: serde_json::Value = serde_json::from_slice(&json)?;
//! assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
mod chrome;
mod export;
mod file;
mod lanes;
mod perfetto;
mod plane_names;
mod sink;

pub(in crate::analysis) use chrome::{ChromeFrame, json};
pub use export::alignment;
pub use export::{TraceFormat, TraceOptions, Traced, write_trace, write_trace_file};
pub use file::{TraceFileError, write_file};
