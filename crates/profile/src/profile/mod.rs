//! Profiles: the bytes of an XSpace to planes, events, and the device time of each module execution.
//!
//! An XSpace (openxla/xla, `xla/tsl/profiler/protobuf/xplane.proto`) holds planes, one per device or host; a plane
//! holds lines, one per thread, stream or view; a line holds events. [`XSpace`] decodes the metadata and indexes the
//! lines; events and stats are read in place, without an allocation. Times are whole picoseconds.
//!
//! [`executions`] finds the module executions with span, busy time and the operations' self time; a [`Measurement`]
//! adds up the kernels of those of one program. [`Profiler`] is ejkernel's profiler as in `ejkernel/profiler.py`, and
//! one with a sample for each execution. [`Finding`] lists a profile's caveats.
//!
//! ```
//! use autotune_lowered_profile::profile::{PlaneWriter, XSpace};
//!
//! let mut plane = PlaneWriter::new("/device:GPU:0");
//! let line = plane.line("Stream #1", 1_000);
//! plane.event(line, "fusion.1", (0, 40), &[]);
//! plane.event(line, "fusion.2", (40, 100), &[]);
//! let space = XSpace::from_bytes(plane.to_space())?;
//! let plane = space.planes().next().ok_or("it has a plane")?;
//! assert_eq!((plane.name().as_ref(), space.event_count()), ("/device:GPU:0", 2));
//! let line = plane.lines().next().ok_or("it has a line")?;
//! let durations: Result<Vec<i64>, _> = line.events().map(|event| event.map(|event| event.duration_ps)).collect();
//! assert_eq!(durations?, [40_000, 60_000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ejkernel;
mod epoch;
mod error;
mod event;
mod execution;
mod find;
mod finding;
mod folding;
mod gather;
mod id_table;
mod index;
pub mod interval;
mod kernels;
mod names;
mod operation_events;
mod other_file;
mod outside;
mod per_execution;
mod plane_view;
mod profiler;
mod record;
mod run_order;
mod runs;
mod sanity;
mod session;
mod source;
mod space;
mod sparse_core;
mod split;
mod sweep;
mod timings;
mod written;
#[allow(missing_docs, unreachable_pub, clippy::enum_variant_names)]
#[rustfmt::skip]
mod xplane;

pub use error::{ProfileError, ProfileErrorKind};
pub use event::{Event, Stat, StatValue, Stats, text};
pub use execution::{AUTOTUNER, DeviceTime, Execution, OutsideKernel, SlowFirst};
pub use find::{RunsOf, executions, executions_folded, executions_of_operations, executions_of_runs};
pub use finding::Finding;
pub use folding::Operation;
pub(crate) use id_table::IdTable;
pub use kernels::{Iteration, Kernel, KernelsDiffer, Measurement};
pub use names::NameId;
pub use operation_events::{EventFold, ExecutionOf, OperationEvent, TakeDone, fold_events};
pub use outside::OutsideTime;
pub use plane_view::Layout;
pub(crate) use plane_view::{OPERATION_LINES, instruction_name, module_name};
pub use profiler::{
    Dropped, EJKERNEL_MAX_EVENTS, FunctionTime, Profiler, Semantics, Timings, function_times, missing_functions,
};
pub use runs::{CaptureFile, CaptureRun, capture_runs};
pub use source::{MAX_SPACE_BYTES, XSpaceCapture, capture_files, captures};
pub use space::{EventChunk, EventMetadata, Line, Plane, XSpace};
pub use written::{PlaneWriter, WrittenStat};
