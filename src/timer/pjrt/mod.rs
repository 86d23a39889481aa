//! PJRT: the worker that loads a plugin, and the timer that drives such workers.

#[allow(missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod compile_options;
mod custom_call;
mod device;
#[allow(unsafe_code)]
mod executable;
#[allow(unsafe_code)]
mod ffi;
mod options;
#[allow(unsafe_code)]
mod plugin;
mod signature;
mod worker;

pub use worker::{PjrtWorkerOptions, worker_main};
