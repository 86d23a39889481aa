//! FLOPs, transcendentals and bytes of instructions, as XLA's own `HloCostAnalysis` counts them.
//!
//! The rules are those of `xla/service/hlo_cost_analysis.cc` in openxla/xla. `tests/hlo/cost.rs` compares them with
//! jaxlib 0.10.2, instruction by instruction. `docs/roofline.md` explains where the two differ, and why.
//!
//! A module is hostile input. Computations are read in file order, callees first as XLA writes them, so there is no
//! recursion. A computation that is called before it is written has an unknown cost.

mod amount;
mod analysis;
mod custom_call;
mod fusion;
mod graph;
mod rules;
mod window;

pub use amount::{Cost, FlopUnit, Flops};
pub use analysis::Costs;
