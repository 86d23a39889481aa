//! Which configs there are, which to measure next, and which one the measurements decide on. No timer and no store.
//!
//! The crate `autotune-lowered` re-exports these modules.
//!
//! ```
//! use autotune_lowered_search::candidates::CandidateSpace;
//!
//! let space = r#"{"schema": 1, "op": "matmul", "parameters": {"rows": [8, 16], "columns": [8, 16]},
//!                 "constraints": ["rows <= columns"], "baseline": {"rows": 8, "columns": 8}}"#;
//! let space = CandidateSpace::parse("matmul.json", space)?;
//! assert_eq!(space.op(), "matmul");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

use autotune_lowered_lookup::{config, digest, io_hint, outside_file, printable, setters, stats};

pub mod candidates;
mod chance;
pub mod constraint;
pub mod decision;
pub mod search;
