//! PJRT: the worker that loads a plugin, and the timer that drives such workers.
//!
//! ```
//! use autotune_lowered_timer::timer::pjrt::{PjrtOptions, discover, kernels_of};
//!
//! let options = PjrtOptions::new("/usr/bin/autotune-lowered", "/opt/pjrt_plugin.so", "/var/cache/best").device(1);
//! assert_eq!((options.device, options.compile_jobs), (1, None));
//! assert!(discover(Some("/no/plugin.so".as_ref()), None).is_err());
//! assert!(kernels_of(b"no executable of a GPU").is_err());
//! ```

mod absent;
mod compile;
mod device;
mod executable_source;
mod execute;
mod plugin;
mod probe;
mod start;
mod timer;
mod worker;
mod worker_options;

pub use absent::{CompileOutcome, TargetCompiler, TargetOptions, TargetProgram, kept_outcomes};
pub use compile::figures::{UnknownKernels, kernels_of};
pub use compile::{
    BoundExecutables, CompiledFor, CompiledOptions, ExecutableBounds, bound_executables, executables_folder,
    keeps_executables,
};
pub use plugin::{FoundPlugin, discover};
pub(in crate::timer) use plugin::{PCI, has_tpu, installed_in};
pub use start::{PjrtOptions, ProbedPlugin, probe};
pub use timer::PjrtTimer;
pub use worker::worker_main;
pub use worker_options::PjrtWorkerOptions;
