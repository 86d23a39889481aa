//! Predicts the configs that were not compiled from those that were: which to compile next, and when the rest can be
//! skipped.
//!
//! The logarithms of the times are a Gaussian process over the configs' [features](super::gaussian), with an
//! independent part for each config. How smooth the process is, how large each config's own part, and how much two
//! calls of an operation have in common is not chosen but averaged over: shapes are drawn from a prior and weighted by
//! how well they predict the outcomes (Rasmussen and Williams, Gaussian Processes for Machine Learning, section 5.2).
//! The scale is integrated out, which makes the process a Student-t one (Shah, Wilson and Ghahramani, Student-t
//! processes as alternatives to Gaussian processes, 2014). Joint draws of all remaining configs give the probability
//! that any of them is better.

mod choice;
mod operation;
mod posterior;
mod predictions;
mod shape;

pub use operation::Surrogate;
pub use predictions::{ExpectedRatio, Predictions, WaveRules};
