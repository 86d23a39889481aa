//! PJRT: the worker that loads a plugin, and the timer that drives such workers.

mod absent;
mod compile;
mod device;
mod execute;
mod plugin;
mod probe;
mod start;
mod timer;
mod worker;
mod worker_options;

pub use absent::{Outcome, TargetCompiler, TargetOptions, TargetProgram, kept_outcomes};
pub use compile::figures::{UnknownKernels, kernels_of};
pub use compile::{
    BoundExecutables, CompiledFor, CompiledOptions, ExecutableBounds, bound_executables, executables_folder,
    keeps_executables,
};
pub use plugin::{FoundPlugin, discover};
pub(in crate::timer) use plugin::{PCI, has_tpu, installed_in};
pub use start::{PjrtOptions, Probed, probe};
pub use timer::PjrtTimer;
pub use worker::worker_main;
pub use worker_options::PjrtWorkerOptions;
