//! The command line: arguments, progress, exit codes. The only room that prints or exits.

mod args;
mod cache;
mod cache_commands;
mod cache_get;
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
mod options;
mod plan;
mod profile;
mod progress;
mod prune;
mod registry;
mod remote;
mod report;
mod run;
mod say;
mod scan;
mod selftest;
mod signature;
mod timers;
mod tune;
mod tune_args;
mod verify;
mod worker;

pub use run::main;
