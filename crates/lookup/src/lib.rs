//! What a program needs to find the best config of a call: devices, calls and configs, the labels of modules, recorded
//! invocations, and the caches that readers map. It measures nothing, and needs neither sled nor signatures.
//!
//! ```
//! use autotune_lowered_lookup::config::Config;
//!
//! let config: Config = serde_json::from_str(r#"{"block_n": 64, "block_m": 128}"#)?;
//! assert_eq!(config.as_str(), r#"{"block_m":128,"block_n":64}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

pub mod array;
pub mod atomic_write;
pub mod batch;
pub mod cache;
pub mod call;
pub mod clock;
pub mod compiler_flags;
pub mod config;
pub mod core_limits;
pub mod counted;
pub mod device;
pub mod digest;
pub mod failure;
pub mod hlo;
pub mod io_hint;
pub mod known_options;
pub mod mapped_file;
pub mod measured_by;
mod open_enum;
pub mod outside_file;
pub mod peaks;
pub mod printable;
pub mod registry;
pub mod scratch;
mod setters;
pub mod stats;
pub mod target;
pub mod wire;
