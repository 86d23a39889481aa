//! The model-guided strategy: a Gaussian process over the configs observed so far says which to ask next.

mod fit;
mod guided;
mod improvement;
mod neighbour;
mod pool;
mod shaped;
mod target;

pub(super) use guided::Guided;
