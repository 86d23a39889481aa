//! FLOPs, transcendentals and bytes of instructions, as XLA's own `HloCostAnalysis` counts them.
//!
//! The rules are those of `xla/service/hlo_cost_analysis.cc` in openxla/xla; `tests/hlo/cost.rs` compares with jaxlib 0.10.2,
//! instruction by instruction. `docs/roofline.md` says where the two differ, and why.
//!
//! A module is hostile input: computations are taken in file order, callees first as XLA writes them, so nothing
//! recurses; a computation that is called before it is written has an unknown cost.

mod amount;
mod analysis;
mod custom_call;
mod fusion;
mod graph;
mod rules;
mod shape;
mod window;

pub use amount::{Cost, FlopUnit, Flops};
pub use analysis::Costs;
pub(super) use shape::Shape;
