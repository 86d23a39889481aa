//! Profiles of XLA programs: XSpaces and captures of nsys-jax, the executions in them, and what they took.
//!
//! ```
//! use autotune_lowered_profile::profile::{PlaneWriter, XSpace};
//!
//! let space = XSpace::from_bytes(PlaneWriter::new("/host:CPU").to_space())?;
//! assert_eq!((space.planes().count(), space.event_count()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

use autotune_lowered_lookup::{
    array, atomic_write, counted, hlo, io_hint, measured_by, outside_file, peaks, setters, stats, wire,
};

pub mod analysis;
pub mod nsys;
pub mod profile;
