//! PJRT: the worker that loads a plugin, and the timer that drives such workers.

mod beside_plugin;
#[allow(unsafe_code)]
mod buffer;
mod cache_flush;
#[allow(missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod compile_options;
mod compiled;
mod compiler;
mod compilers;
mod compiling;
mod cuda_tools;
mod custom_call;
mod device;
mod discover;
#[allow(unsafe_code)]
mod executable;
mod ffi;
mod flags;
mod gpu_code;
mod job;
mod kept;
mod llo;
mod no_device;
#[allow(unsafe_code)]
mod nvml;
mod options;
mod package;
#[allow(unsafe_code)]
mod plugin;
mod plugin_digest;
mod probe;
mod process_flags;
#[allow(unsafe_code)]
mod profiler;
mod program_shardings;
mod restore;
mod same_work;
mod sharding;
mod signature;
mod start;
mod store;
mod target_compiler;
mod target_worker;
mod timer;
#[allow(unsafe_code)]
mod topology;
mod worker;
mod worker_options;

pub use compiled::CompiledOptions;
pub(in crate::timer) use discover::installed_in;
pub use discover::{FoundPlugin, discover};
pub use gpu_code::{UnknownKernels, kernels_of};
pub(in crate::timer) use no_device::{PCI, has_tpu};
pub use start::{PjrtOptions, Probed, probe};
pub use store::CompiledFor;
pub use store::{BoundExecutables, ExecutableBounds, bound_executables, executables_folder, keeps_executables};
pub use target_compiler::{Outcome, TargetCompiler, TargetOptions, TargetProgram, kept_outcomes};
pub use timer::PjrtTimer;
pub use worker::worker_main;
pub use worker_options::PjrtWorkerOptions;
