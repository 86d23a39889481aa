//! On-device profiles of Mosaic GPU kernels: what JAX's `ProfilerSpec` left in a buffer, drawn as a trace.
//!
//! Writing the records on the device is JAX's part (`jax.experimental.mosaic.gpu.profiler`); this reads the buffer. Each
//! warpgroup of a block (or each warp) owns a row of 32-bit words:
//!
//! | word | what it holds |
//! | --- | --- |
//! | 0 | start: the low half of `%globaltimer`, nanoseconds |
//! | 1 | the SM |
//! | 2 | words of events that follow; older versions of JAX count these three words too |
//! | 3, 5, … | a name's number, with bit 31 set where its range ends |
//! | 4, 6, … | the time: the low half of `%clock`, cycles |

mod draw;
mod dump;
mod error;
mod npy;
mod spec;

pub use draw::{Clock, Drawn, draw};
pub use dump::{Dump, Record, Timeline};
pub use error::MosaicError;
pub use npy::{Words, read_npy};
pub use spec::{Extent, ProfilerSpec, Scope, read_names};
