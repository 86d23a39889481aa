//! An offline autotuner for lowered HLO computations.
//!
//! The program is one walk, and the modules are its rooms: a module's bytes become labels ([`hlo`]), labels meet
//! recorded invocations ([`matching`], [`registry`]), candidates are timed ([`timer`]), the samples are kept
//! ([`samples`]) and decided on ([`decision`]), and the best configs are committed ([`cache`]). [`tune`] walks it;
//! [`measure`] takes one program's kernels; [`report`] draws what happened. A module uses only modules on lower floors; `ARCHITECTURE.md` lists them.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)
)]

pub mod array;
pub mod batch;
pub mod call;
pub mod config;
pub mod constraint;
#[cfg(feature = "tuner")]
mod counted;
pub mod device;
pub mod digest;
pub mod failure;
pub mod mapped_file;
pub mod measured_by;
mod open_enum;
mod outside_file;
mod printable;
mod remedy;
#[cfg(feature = "tuner")]
mod scratch;
pub mod stats;
mod whole_file;
pub mod wire;

#[cfg(feature = "tuner")]
pub mod candidates;
#[cfg(feature = "tuner")]
pub mod decision;
pub mod hlo;
#[cfg(feature = "nsys")]
pub mod nsys;
#[cfg(feature = "tuner")]
pub mod profile;
#[cfg(feature = "shared")]
pub mod signature;

#[cfg(feature = "tuner")]
pub mod analysis;
pub mod cache;
pub mod registry;
#[cfg(feature = "tuner")]
pub mod samples;
#[cfg(feature = "tuner")]
pub mod search;

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
pub mod tune;

#[cfg(feature = "tuner")]
pub mod gate;
#[cfg(feature = "tuner")]
pub mod report;
#[cfg(feature = "tuner")]
pub mod selftest;

#[cfg(feature = "cli")]
pub mod cli;
