//! Whole programs side by side: two or more of module × compile options × timer. Their outputs are checked, and each
//! one's time is divided by the first one's, with an interval that is valid at every look.
//!
//! [`compare`] races the contestants and the first of them once more, compiled and loaded separately. That copy's
//! difference from the first is the effect of noise alone: nothing is called faster or slower by less.

mod contestant;
mod error;
mod result;
mod run;

pub use contestant::{CompareOptions, Contestant};
pub use error::CompareError;
pub use result::{CompareResult, ContestantResult, Outputs, SelfNoise};
pub use run::compare;
pub(crate) use run::compare_named;
