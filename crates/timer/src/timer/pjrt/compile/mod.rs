//! Compilations: the programs and their options, the workers that compile them side by side, what a compiled program
//! says about itself, and the stores that keep executables and refusals.

mod ahead_of_time;
pub(crate) mod figures;
mod options;
#[allow(missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod options_proto;
#[allow(unsafe_code)]
mod plain_executable;
mod pool;
mod process_flags;
mod program;
mod refusal;
mod signature;
mod store;
mod work_digest;
mod worker_process;

pub use ahead_of_time::CompiledOptions;
pub(crate) use ahead_of_time::{CompiledBefore, CompiledStore};
pub(crate) use options::{Partitions, compile_options, partitioned_options};
pub(crate) use plain_executable::PlainExecutable;
pub(crate) use pool::Compilers;
pub(crate) use process_flags::ProcessFlags;
pub(crate) use program::{options_of, read_code, timed};
pub(crate) use refusal::{compile_failure, gives_no_reason, refusal};
pub(crate) use signature::{module_of, parameters};
pub use store::{
    BoundExecutables, CompiledFor, ExecutableBounds, bound_executables, executables_folder, keeps_executables,
};
pub(crate) use store::{
    CompileNote, ExecutableKey, ExecutableStore, KeptOutcome, ListedExecutable, MAX_EXECUTABLE_BYTES, StoredExecutable,
    believed,
};
pub(crate) use work_digest::work_digest;
pub(crate) use worker_process::{
    CompileCommands, CompileTask, CompileWorker, CompiledTask, DeviceAccess, as_compile_failure,
};
