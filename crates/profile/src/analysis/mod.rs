//! Where the time goes: the only module that combines HLO ([`crate::hlo`]) with profiles.
//!
//! A [`Capture`] is one of XLA's profiler ([`crate::profile`]) or of nsys-jax (`nsys`); each analysis takes both.
//! [`Programs`] finds the HLO of what a capture ran, from the capture itself and from [`HloFiles`]; [`Attribution`] says
//! what an operation is by it. [`Counted`] leaves out executions that are not measurements. [`summarize`] adds up.

mod attribution;
mod capture;
pub mod collectives;
pub mod compile;
mod diff;
mod flame;
mod host_work;
mod minor;
pub mod mosaic;
mod nsys;
mod programs;
mod read;
mod runtime;
mod summary;
mod timings;
mod totals;
pub mod trace;
mod work;

pub use attribution::{Attribution, inner, is_communication};
pub use capture::Capture;
pub use diff::{DiffRow, ProfileDiff, Sample as DiffSample, Verdict, profile_diff};
pub use flame::{ACTIVE, IDLE_BETWEEN_FRAME, IDLE_INSIDE_FRAME, Stacks, StacksBy, stacks, stacks_by};
pub use host_work::HostWork;
pub use minor::Counting;
pub use nsys::{NsysProfile, nsys_captures};
pub use programs::{HloFileError, HloFiles, Programs};
pub use read::CaptureError;
pub use runtime::{Counted, DeviceRuntime, Skipped};
pub use summary::{
    AllSkipped, IDLE_INSIDE, LabelShare, LeftOutTime, MeanStd, ModuleSummary, OperationSummary, Part, ProfileRead,
    Summary, SummaryOptions, UNKNOWN, summarize,
};
pub use timings::{DeviceSeconds, ProfileTimings, TimedProfile};
pub use work::{Bound, Roofline, Work};
