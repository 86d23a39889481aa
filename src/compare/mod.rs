//! Whole programs side by side: any two or more of module × compile options × timer, their outputs checked, each one's time over
//! the first one's with an interval that holds however often one looks.
//!
//! [`compare`] races the contestants and the first of them once more, compiled and loaded by itself. What that copy differs from
//! the first by is what noise alone makes: nothing is called faster or slower by less.

mod contestant;
mod error;
mod result;
mod run;

pub use contestant::{CompareOptions, Contestant};
pub use error::CompareError;
pub use result::{CompareResult, ContestantResult, Noise, Outputs};
pub use run::compare;
