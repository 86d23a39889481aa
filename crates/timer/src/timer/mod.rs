//! Timers: a candidate and its inputs in, samples out. What can crash runs in worker processes.
//!
//! ```
//! use autotune_lowered_timer::timer::{TimerName, WorkerCommand};
//!
//! let name: TimerName = "command:python3 worker.py --fast".parse()?;
//! let TimerName::Command(command) = &name else { panic!("{name} is another timer") };
//! let worker = WorkerCommand::shell("/usr/bin/autotune-lowered", command);
//! assert_eq!(worker.command, ["sh", "-c", "exec python3 worker.py --fast"]);
//! assert_eq!(name.to_string(), "command:python3 worker.py --fast");
//! # Ok::<(), autotune_lowered_timer::timer::UnknownTimer>(())
//! ```

mod active_python;
mod answers;
mod argument_check;
mod auto;
mod bench;
mod call_time_limits;
mod client;
mod clock;
mod command;
mod compared_blocks;
mod compile_times;
mod compiler_figures;
pub mod conformance;
pub mod events;
pub mod exec;
mod forecast;
mod forked;
mod hlo_text;
mod info;
mod job;
mod log_keeper;
mod measured;
mod model;
mod name;
mod one_at_a_time;
mod partitions;
mod phases;
pub mod pjrt;
mod profiled;
pub mod protocol;
mod recorders;
mod refusals;
pub mod replay;
mod seen_clocks;
pub mod server;
mod side_by_side;
mod stderr_tail;
pub mod subscriber;
mod worker_command;

pub use active_python::ActivePython;
pub use answers::OutputArray;
pub use auto::AutoTimer;
pub use client::WorkerClient;
pub use clock::{HOST_CLOCK, NO_PROFILER};
pub use command::{CommandTimer, JaxScript};
pub use compile_times::CompileTimes;
pub use compiler_figures::CompilerFigures;
pub use forecast::Forecast;
pub use hlo_text::hlo_text_to_proto;
pub use info::{TimerCapabilities, TimerInfo};
pub use job::{Build, InputArray, Job, JobCandidate, OptionsFile, Prepared, ProgramFile};
pub use log_keeper::LogKeeper;
pub use measured::{CandidateRuns, OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
pub use model::{Foreknown, Timer, TimerExt};
pub use name::{TimerName, UnknownTimer};
pub use one_at_a_time::{OneAtATime, StartTimer};
pub use phases::PHASES_PLANE;
pub use profiled::ProfiledRound;
pub use protocol::ProgramSignature;
pub use recorders::{IsCancelled, Lowered, Recorders, ToLower, is_of_candidate};
pub use replay::{ProfileReplay, ReplayKeeper, ReplayTimer};
pub use side_by_side::{OtherClock, SideBySide};
pub use worker_command::{WorkerCommand, WorkerLimits};
