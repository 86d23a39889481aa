//! On-device profiles of Mosaic GPU kernels: what JAX's `ProfilerSpec` left in a buffer, drawn as a trace.
//!
//! Writing the records on the device is JAX's part (`jax.experimental.mosaic.gpu.profiler`); this reads the buffer.
//! Each warpgroup of a block (or each warp) owns a row of 32-bit words:
//!
//! | word | what it holds |
//! | --- | --- |
//! | 0 | start: the low half of `%globaltimer`, nanoseconds |
//! | 1 | the SM |
//! | 2 | words of events that follow; older versions of JAX count these three words too |
//! | 3, 5, … | a name's number, with bit 31 set where its range ends |
//! | 4, 6, … | the time: the low half of `%clock`, cycles |
//!
//! ```
//! use autotune_lowered_profile::analysis::mosaic::{Extent, ProfilerSpec, Scope};
//!
//! // room for twenty ranges of each warpgroup: a header of three words, and four words a range
//! let spec = ProfilerSpec::new(ProfilerSpec::entries_for(20), Scope::Warpgroup);
//! assert!(spec.ranges() >= 20);
//! let (grid, block) = (Extent([4, 1, 1]), Extent([256, 1, 1]));
//! assert_eq!((spec.traces_per_block(block)?, spec.traces(grid, block)?), (2, 8));
//! assert!(spec.traces_per_block(Extent([100, 1, 1])).is_err(), "not whole warpgroups");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draw;
mod dump;
mod error;
mod spec;
mod words;

pub use draw::{Clock, Drawn, draw};
pub use dump::{Dump, Record, Timeline};
pub use error::MosaicError;
pub use spec::{Extent, ProfilerSpec, Scope, read_names};
pub use words::{Words, read_npy};
