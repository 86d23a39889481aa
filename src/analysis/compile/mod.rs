//! Where compilation spends its time, with the work of threads beside each other counted once.
//!
//! The accounting is nsys-jax's (NVIDIA/JAX-Toolbox, `nsys_jax/analysis.py`, `generate_compilation_statistics`); `docs/compile.md`
//! has it and says where we differ.

mod forest;
#[cfg(feature = "nsys")]
mod nsys;
mod phase;
mod report;
mod space;

pub use forest::CompileRange;
#[cfg(feature = "nsys")]
pub use nsys::nsys_compile_ranges;
pub use report::{Compilation, CompileOptions, CompileReport, PhaseTime, compile_report};
pub use space::space_compile_ranges;
