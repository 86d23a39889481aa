//! How long programs take, measured in worker processes: the protocol, its workers, replayed samples, and the PJRT binding.
//! Keys and signatures are here, too, since executables and snapshots are believed by them.
//!
//! ```
//! use autotune_lowered_timer::timer::TimerSpec;
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

use autotune_lowered_lookup::{
    array, call, compiler_flags, config, core_limits, counted, device, digest, failure, hlo, mapped_file, measured_by,
    outside_file, printable, registry, remedy, scratch, setters, target, whole_file, wire,
};
use autotune_lowered_profile::profile;

pub mod signature;
pub mod timer;
