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
//! let plan = plan(&scan, &registry, &timer.device().identity, &PlanOptions::default())?;
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
//! That measures nothing and does not need the feature `tuner`.
//!
//! # The modules
//!
//! The program is one walk, and every module is one step of it. Each uses only earlier ones; `ARCHITECTURE.md` lists the
//! floors.
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
//! | Check that cached configs still hold, and find this machine's noise floor | [`gate`], [`selftest`] |
//! | Read profiles | [`profile`], [`analysis`] |
//! | Draw what happened | [`report`] |
//!
//! The types that all of them use are on the lowest floor: [`call`], [`config`], [`device`], [`digest`], [`failure`],
//! [`measured_by`], [`mod@array`].
//!
//! # Features
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `cli` | the program's command line, with `pjrt` and `shared` | yes |
//! | `pjrt` | compiling and timing with a PJRT plugin; includes `tuner` | by `cli` |
//! | `tuner` | everything that measures and decides | by `pjrt` |
//! | `shared` | caches at a `file://` URL, signatures | by `cli` |
//! | `remote` | caches at S3, Google Cloud Storage, Azure and the web | no |
//! | `nsys` | captures of nsys-jax as profiles | no |
//!
//! Without any of them the library reads labels, writes registries and looks configs up.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

pub use autotune_lowered_lookup::{array, config, digest};
pub(crate) use autotune_lowered_lookup::{counted, known_options, outside_file, remedy, setters};
#[doc(hidden)]
pub use autotune_lowered_lookup::{printable, stats};
#[cfg(feature = "tuner")]
pub use autotune_lowered_search::{candidates, constraint, decision, search};

pub mod batch;
pub mod call;
#[cfg(any(feature = "tuner", feature = "remote"))]
mod clock;
pub mod device;
pub mod failure;
#[cfg(feature = "tuner")]
mod junit;
mod mapped_file;
pub mod measured_by;
mod open_enum;
#[cfg(feature = "tuner")]
mod scratch;
mod whole_file;
#[doc(hidden)]
pub mod wire;

#[cfg(feature = "cli")]
pub mod guide;
pub mod hlo;
#[cfg(feature = "nsys")]
pub mod nsys;
#[cfg(feature = "tuner")]
pub mod profile;
#[cfg(feature = "cli")]
pub mod settings;
#[cfg(any(feature = "shared", feature = "pjrt"))]
pub mod signature;

#[cfg(feature = "tuner")]
pub mod analysis;
pub mod cache;
pub mod registry;
#[cfg(feature = "tuner")]
pub mod samples;

#[cfg(feature = "tuner")]
pub mod ledger;
#[cfg(feature = "tuner")]
pub mod matching;
#[cfg(feature = "shared")]
pub mod remote;
#[cfg(feature = "tuner")]
pub mod timer;

#[cfg(feature = "tuner")]
pub mod measure;
#[cfg(feature = "tuner")]
pub mod race;
#[cfg(feature = "tuner")]
pub mod tune;

#[cfg(feature = "tuner")]
pub mod compare;
#[cfg(feature = "pjrt")]
pub mod compile;
#[cfg(feature = "tuner")]
pub mod compiler_options;
#[cfg(feature = "tuner")]
pub mod gate;
#[cfg(feature = "tuner")]
pub mod selftest;

#[cfg(feature = "tuner")]
pub mod prove;

#[cfg(feature = "tuner")]
pub mod report;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
