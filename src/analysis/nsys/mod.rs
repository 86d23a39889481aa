//! Captures of nsys-jax as every analysis reads them: [`nsys_captures`] finds the executions among the ranges, and draws them.

mod executions;
mod import;
mod profile;

pub use import::nsys_captures;
pub use profile::NsysProfile;
