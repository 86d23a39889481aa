//! Where compilation spends its time, without counting parallel threads twice.
//!
//! The accounting is nsys-jax's (NVIDIA/JAX-Toolbox, `nsys_jax/analysis.py`, `generate_compilation_statistics`);
//! `docs/compile.md` has it and says where we differ.

mod forest;
mod nsys;
mod phase;
mod ranges;
mod report;
mod space;

pub use forest::CompileRange;
pub use ranges::compile_ranges;
pub use report::{Compilation, CompileOptions, CompileReport, PhaseTime, compile_report};
