//! Timers: a candidate and its inputs in, samples out. What can crash runs in worker processes.

mod active_python;
mod answers;
#[cfg(feature = "pjrt")]
mod auto;
mod bench;
mod client;
#[cfg(feature = "pjrt")]
mod clock;
mod command;
pub mod conformance;
mod cut_off;
pub mod exec;
mod following;
mod model;
mod partitions;
mod phases;
#[cfg(feature = "pjrt")]
pub mod pjrt;
mod profiled;
pub mod protocol;
pub mod replay;
pub mod server;
pub(crate) mod subscriber;

/// Target of the `tracing` spans that say what a run does and when: operations, their phases, each candidate in them, and what is
/// compiled beside them. A span's field `title` is what to call it, and `track` names a row of its own.
pub const SPANS: &str = "autotune_lowered::run";

pub use active_python::ActivePython;
pub use answers::OutputArray;
#[cfg(feature = "pjrt")]
pub use auto::AutoTimer;
pub use client::{Limits, WorkerClient, WorkerCommand};
pub use command::CommandTimer;
pub use following::FollowingTimer;
pub use model::{InputArray, Job, JobCandidate, Prepared, ProgramFile, Timer};
pub(crate) use phases::PHASES_PLANE;
pub use profiled::ProfiledRound;
pub use replay::{KeepingTimer, ProfileReplay, ReplayTimer};
