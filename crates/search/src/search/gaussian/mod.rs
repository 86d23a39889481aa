//! A Gaussian process over configs: their features, the covariance of two of them, and the outcomes observed so far.
//!
//! The guided strategy and the surrogate of waves are both built on it. They differ in what they do about the
//! hyperparameters: the one fits them, since it is asked after each outcome, and the other averages over them.

mod cholesky;
mod features;
mod figures;
mod kernel;
mod process;

pub(super) use cholesky::Cholesky;
pub(super) use features::Features;
pub(super) use figures::{FIGURES, figure_columns};
pub(super) use kernel::{Coordinates, covariance, dot};
pub(super) use process::GaussianProcess;
