//! An offline autotuner for lowered HLO computations.
//!
//! A lowered module comes in. Its labels say which tunable calls it makes. Each call is matched with its recorded
//! configs, every config is timed on this device, and the best ones are committed to a cache that any program loads:
//!
//! ```
//! use autotune_lowered::hlo::{ScanOptions, scan_path};
//! use autotune_lowered::ledger::Ledger;
//! use autotune_lowered::registry::Registry;
//! use autotune_lowered::timer::{ReplayTimer, Timer};
//! use autotune_lowered::tune::{PlanOptions, Session, plan};
//!
//! let scan = scan_path("examples/transformer/module.hlo.txt", &ScanOptions::default())?;
//! let registry = Registry::open("examples/transformer/registry")?;
//! // on a device: `timer::pjrt::PjrtTimer`
//! let mut timer = ReplayTimer::open("examples/transformer/simulated.json".as_ref())?;
//! let plan = plan(&scan, &registry, &timer.info().device.identity, &PlanOptions::default())?;
//! // to keep what is decided: `Ledger::open`
//! let ledger = Ledger::in_memory(Vec::new());
//! let result = Session::new(&registry, &ledger, &mut timer).run(&plan)?;
//! for operation in &result.operations {
//!     let best = operation.best.as_ref().map(|best| best.config.to_brief());
//!     println!("{}: {}, use {best:?}", operation.call, operation.status.name());
//! }
//! # assert_eq!(result.operations.len(), 4);
//! # assert!(result.operations.iter().all(|operation| operation.speed_up.is_some_and(|times| times > 1.9)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that only wants the best config of a call opens a [`TieredCache`](cache::TieredCache) and looks it up.
//! That measures nothing, and needs only the crate `autotune-lowered-lookup`.
//!
//! # The modules
//!
//! The program is one walk, and every module is one step of it. Each uses only earlier ones; `ARCHITECTURE.md` lists
//! the floors.
//!
//! | step | modules |
//! | --- | --- |
//! | Read a module: which tunable calls it makes | [`hlo`] |
//! | Match them with their recordings on such a device | [`registry`], [`matching`] |
//! | Choose configs | [`candidates`], [`search`], [`constraint`] |
//! | Time them in worker processes | [`timer`] |
//! | Keep every sample, and decide on them | [`samples`], [`decision`] |
//! | Commit the best configs, and look them up | [`ledger`], [`cache`] |
//! | Share caches between machines | [`remote`], [`signature`] |
//! | Race programs; run all steps; measure one program | [`race`], [`tune`], [`measure`], [`compiler_options`] |
//! | Compare whole programs, and ways to compile them | [`compare`] |
//! | Check that cached configs still hold, also with another compiler; find this machine's noise floor | [`gate`], [`upgrade`], [`selftest`] |
//! | Read profiles | [`profile`], [`analysis`] |
//! | Draw what happened | [`report`] |
//!
//! The types that all of them use are on the lowest floor: [`call`], [`config`], [`device`], [`digest`], [`failure`],
//! [`measured_by`], [`mod@array`].
//!
//! # Crates and features
//!
//! The modules below `tune` are in crates of their own, and are re-exported here. A program that only looks configs up
//! depends on `autotune-lowered-lookup` alone.
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `remote` | caches at S3, Google Cloud Storage, Azure and the web | no |
//! | `nsys` | captures of nsys-jax as profiles | no |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

pub use autotune_lowered_lookup::{
    array, batch, cache, call, compiler_flags, config, core_limits, device, digest, failure, hlo, measured_by, peaks,
    registry, target,
};
pub(crate) use autotune_lowered_lookup::{
    atomic_write, clock, counted, io_hint, mapped_file, outside_file, scratch, setters,
};
#[doc(hidden)]
pub use autotune_lowered_lookup::{printable, stats, wire};
pub use autotune_lowered_profile::{analysis, nsys, profile};
pub use autotune_lowered_search::{candidates, constraint, decision, search};
pub use autotune_lowered_timer::{signature, timer};

#[doc(hidden)]
pub mod cli;
pub mod compare;
pub mod compile;
pub mod compiler_options;
pub mod exchange;
pub mod gate;
mod junit;
pub mod ledger;
pub mod lowering;
pub mod matching;
pub mod measure;
pub mod merge;
pub mod prove;
pub mod race;
pub mod remote;
pub mod report;
pub mod samples;
pub mod selftest;
pub mod settings;
pub mod sled_store;
pub mod tune;
pub mod upgrade;
