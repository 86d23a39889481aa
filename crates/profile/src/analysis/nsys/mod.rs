//! Captures of nsys-jax in the form that every analysis reads: [`nsys_captures`] finds the executions among the ranges,
//! and draws them.

mod executions;
mod import;
mod profile;

pub use import::nsys_captures;
pub use profile::NsysProfile;
