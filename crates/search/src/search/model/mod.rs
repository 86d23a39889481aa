//! The model-guided strategy: a Gaussian process over the configs observed so far says which to ask next.

mod features;
mod fit;
mod guided;
mod improvement;
mod kernel;
mod neighbour;
mod process;
mod target;

pub(super) use features::Features;
pub(super) use guided::Guided;
pub(super) use kernel::{Coordinates, covariance, dot};
