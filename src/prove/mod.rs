//! How much tuned calls speed up their step; uses [`compare`](crate::compare).
//!
//! `autotune_lowered.dump(step, DIR, variants=result)` writes a folder of one step in several forms: with all calls at
//! their baselines, with all tuned, and with sets of calls reverted to their baselines. The sets are halves, down to
//! single calls. [`prove`] races all tuned against the baselines, which gives the gain of the step. It races each form
//! without a set against all tuned, which gives the contribution of that set. The proven set consists of the calls of
//! one raced form, without the calls that lose.

mod entries;
mod error;
mod manifest;
mod result;
mod run;
mod tree;

pub use entries::proven_entries;
pub use error::ProveError;
pub use manifest::{StepCall, StepVariants};
pub use result::{CallEffect, Effect, ProveResult, ProvenSet, SetEffect, StepVerdict};
pub use run::prove;
