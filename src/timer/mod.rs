//! Timers: a candidate and its inputs in, samples out. What can crash runs in worker processes.

mod active_python;
mod answers;
#[cfg(feature = "pjrt")]
mod auto;
mod bench;
mod call_time_limits;
mod client;
#[cfg(feature = "pjrt")]
mod clock;
mod command;
#[cfg(feature = "pjrt")]
mod compared_blocks;
mod compiler_figures;
pub mod conformance;
pub mod events;
pub mod exec;
mod forecast;
mod hlo_text;
mod job;
mod log_keeper;
mod model;
mod name;
mod partitions;
mod phases;
#[cfg(feature = "pjrt")]
pub mod pjrt;
mod profiled;
pub mod protocol;
mod refusals;
pub mod replay;
mod seen_clocks;
pub mod server;
mod side_by_side;
pub(crate) mod subscriber;

pub use active_python::ActivePython;
pub use answers::OutputArray;
#[cfg(feature = "pjrt")]
pub use auto::AutoTimer;
pub use client::{Limits, WorkerClient, WorkerCommand};
pub use clock::{HOST_CLOCK, NO_PROFILER};
pub use command::CommandTimer;
pub use compiler_figures::CompilerFigures;
pub use forecast::Forecast;
pub use hlo_text::hlo_text_to_proto;
pub use job::{Build, InputArray, Job, JobCandidate, OptionsFile, Prepared, ProgramFile};
pub use log_keeper::LogKeeper;
pub use model::Timer;
pub use name::{TimerName, UnknownTimer};
pub(crate) use phases::PHASES_PLANE;
pub use profiled::ProfiledRound;
pub use protocol::Signature;
pub use replay::{ProfileReplay, ReplayKeeper, ReplayTimer};
pub use side_by_side::{OtherClock, SideBySide};
