//! PJRT: the worker that loads a plugin, and the timer that drives such workers.

mod cold;
#[allow(missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod compile_options;
mod compiler;
mod compilers;
mod custom_call;
mod device;
mod discover;
#[allow(unsafe_code)]
mod executable;
mod ffi;
mod flags;
mod job;
mod options;
#[allow(unsafe_code)]
mod plugin;
mod probe;
#[allow(unsafe_code)]
mod profiler;
mod signature;
mod store;
mod timer;
mod worker;

pub(in crate::timer) use discover::installed_in;
pub use discover::{FoundPlugin, discover};
pub use store::{BoundExecutables, ExecutableBounds, bound_executables};
pub use timer::{HOST_CLOCK, PjrtOptions, PjrtTimer, probe};
pub use worker::{PjrtWorkerOptions, worker_main};
