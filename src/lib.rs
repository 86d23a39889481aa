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
pub mod config;
pub mod device;
pub mod digest;
pub mod label;
pub mod stats;
pub mod wire;

pub mod candidates;
pub mod decision;
pub mod hlo;
pub mod profile;

pub mod cache;
pub mod registry;
pub mod samples;

pub mod matching;
pub mod timer;

pub mod measure;
pub mod tune;

pub mod report;

#[cfg(feature = "cli")]
pub mod cli;
