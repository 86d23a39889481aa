//! Timers: a candidate and its inputs in, samples out. What can crash runs in worker processes.

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
#[cfg(feature = "pjrt")]
pub mod pjrt;
mod profiled;
pub mod protocol;
pub mod replay;
pub mod server;
pub(crate) mod subscriber;

pub use client::{Limits, WorkerClient, WorkerCommand};
pub use command::CommandTimer;
pub use following::FollowingTimer;
pub use model::{
    CacheState, Failure, FailureKind, InputArray, Job, JobCandidate, Metric, OutputArray, Prepared, ProgramFile,
    Source, Timer,
};
pub use profiled::ProfiledRound;
pub use replay::{KeepingTimer, ProfileReplay, ReplayTimer};
