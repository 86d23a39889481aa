//! An offline autotuner for lowered HLO computations.
//!
//! A lowered module comes in. Its labels say which tunable calls it makes. Each call is matched with its recorded
//! configs, every config is timed on this device, and the best ones are committed to a cache that any program loads:
//!
//! ```
//! use autotune_lowered::autotune::Autotune;
//! use autotune_lowered::timer::ReplayTimer;
//!
//! // on a device: `timer::pjrt::PjrtTimer`
//! let mut timer = ReplayTimer::open("examples/transformer/simulated.json".as_ref())?;
//! # let cache = tempfile::tempdir()?;
//! # let cache = cache.path();
//! let tuned = Autotune::module("examples/transformer/module.hlo.txt").cache(cache).run(&mut timer)?;
//! println!("{tuned}");
//! let matmul = tuned.operation("blocked_matmul@v1", "4a92df18023cfca8")?;
//! println!("{}: {}", matmul.status.name(), matmul.to_use().config.to_brief());
//! # assert_eq!(matmul.to_use().config.to_brief(), "block_k=256 block_m=256 block_n=256");
//! # assert!(tuned.to_string().starts_with("operation"));
//! # assert_eq!(tuned.operations.len(), 4);
//! # assert!(tuned.operations.iter().all(|operation| operation.speed_up.is_some_and(|times| times > 1.9)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`tune`] shows the same walk step by step.
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
//! | Race programs; run all steps; measure one program | [`race`], [`tune`], [`autotune`], [`measure`], [`compiler_options`] |
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

pub mod autotune;
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
