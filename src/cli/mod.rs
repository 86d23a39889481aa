//! The command line: arguments, progress, exit codes. The only room that prints or exits.

mod args;
mod cache;
mod candidates;
mod check;
mod coverage;
mod device;
mod ending;
mod exchange;
mod executables;
pub mod exit;
mod fault;
mod logging;
mod measure;
mod merge;
mod meta;
mod plan;
mod profile;
mod progress;
mod prune;
mod registry;
mod remote;
mod report;
mod run;
mod run_trace;
mod scan;
mod selftest;
mod signature;
mod tune;
mod verify;
mod worker;

pub use run::main;
pub use run_trace::RunTrace;
