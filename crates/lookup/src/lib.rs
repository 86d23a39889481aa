//! What the crates of autotune-lowered share: arrays, configs, digests, statistics, and files that others name.
//!
//! The crate `autotune-lowered` re-exports what its users need of it.
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
pub mod config;
pub mod counted;
pub mod digest;
pub mod known_options;
pub mod outside_file;
pub mod printable;
pub mod remedy;
mod setters;
pub mod stats;
