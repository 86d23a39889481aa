//! Where the time goes: the only module that combines HLO ([`crate::hlo`]) with profiles.
//!
//! A [`Capture`] is one of XLA's profiler ([`crate::profile`]) or of nsys-jax (`nsys`); each analysis takes both.
//! [`Programs`] finds the HLO of what a capture ran, from the capture itself and from [`HloFiles`]; [`Attribution`]
//! says what an operation is by it. [`Counted`] leaves out executions that are not measurements. [`summarize`] adds up.
//!
//! ```
//! use autotune_lowered_profile::analysis::{Capture, HloFiles, SummaryOptions, summarize};
//! use autotune_lowered_profile::profile::{PlaneWriter, XSpace};
//!
//! let mut plane = PlaneWriter::new("/device:GPU:0");
//! let (modules, operations) = (plane.line("XLA Modules", 0), plane.line("XLA Ops", 0));
//! plane.event(modules, "jit_step(7)", (0, 100), &[]);
//! plane.event(operations, "fusion.1", (0, 40), &[]);
//! plane.event(operations, "dot.2", (40, 100), &[]);
//! let space = XSpace::from_bytes(plane.to_space())?;
//! let captures = [Capture::xspace("step.xplane.pb", "host", space)];
//! let summary = summarize(&captures, &HloFiles::default(), SummaryOptions::default());
//! assert_eq!(summary.profiles.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attribution;
mod by_kind;
mod capture;
pub mod collectives;
pub mod compile;
mod diff;
mod event_facts;
mod flame;
mod host_work;
mod known;
mod minor;
mod modules;
pub mod mosaic;
mod nsys;
mod outside;
mod programs;
mod read;
mod runtime;
mod summary;
mod timings;
mod totals;
pub mod trace;
mod work;

pub use attribution::{Attribution, KnownBy, UNKNOWN, UserNames, inner};
pub use by_kind::{MeanStd, OperationSummary, Part};
pub use capture::Capture;
pub use diff::{DiffRow, ProfileDiff, Sample as DiffSample, Verdict, profile_diff};
pub use flame::{ACTIVE, IDLE_BETWEEN_FRAME, IDLE_INSIDE_FRAME, Stacks, StacksBy, stacks, stacks_by};
pub use host_work::HostWork;
pub use minor::Counting;
pub use nsys::{NsysProfile, nsys_captures};
pub use outside::KernelShare;
pub use programs::{HloFileError, HloFiles, Programs};
pub use read::CaptureError;
pub use runtime::{Counted, DeviceRuntime, Skipped};
pub use summary::{
    AllSkipped, IDLE_INSIDE, KnownKernelShare, LabelShare, LeftOutTime, ModuleSummary, ProfileRead, Summary,
    SummaryOptions, summarize,
};
pub use timings::{DeviceSeconds, ProfileTimings, TimedProfile};
pub use work::{Bound, Roofline, Work};
