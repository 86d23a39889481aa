//! Captures of nsys-jax as every analysis reads them: [`nsys_captures`] makes an XSpace of each, with the executions that its
//! ranges tell ([`Told`](crate::profile::Told)).

mod executions;
mod import;

pub(super) use executions::{Devices, Execution, compiled_programs, executions, operation};
pub use import::nsys_captures;
