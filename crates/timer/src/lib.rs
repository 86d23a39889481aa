//! How long programs take, measured in worker processes: the protocol, its workers, replayed samples, and the PJRT
//! binding. Keys and signatures are here, too, since executables and snapshots are believed by them.
//!
//! ```
//! use autotune_lowered_lookup::{call::Call, config::Config};
//! use autotune_lowered_timer::timer::{Job, JobCandidate, ReplayTimer, Timer, replay::Recording};
//!
//! let recording: Recording = serde_json::from_str(
//!     r#"{"schema": 1,
//!         "device": {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}},
//!         "invocations": [{"op_id": "matmul@v1", "call_key": "0123456789abcdef",
//!                          "candidates": [{"config": {"block": 64}, "compile_ns": 1000, "epochs": [[900, 910]]}]}]}"#,
//! )?;
//! let config: Config = serde_json::from_str(r#"{"block": 64}"#)?;
//! let scratch = tempfile::tempdir()?;
//! let job = Job::new(Call::new("matmul@v1", "0123456789abcdef"), scratch.path());
//! let mut timer = ReplayTimer::new(recording)?;
//! timer.begin(&job.candidates(vec![JobCandidate::new(config)]))?;
//! assert_eq!(timer.prepare(0)?.compile_ns, 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

use autotune_lowered_lookup::{
    array, atomic_write, call, compiler_flags, config, core_limits, counted, device, digest, failure, hlo, io_hint,
    mapped_file, measured_by, outside_file, printable, registry, scratch, setters, target, wire,
};
use autotune_lowered_profile::profile;

pub mod signature;
pub mod timer;
