//! The command line: arguments, progress, exit codes. The only room that prints or exits.

mod args;
mod bench;
mod cache;
mod candidates;
mod check;
mod device;
mod exchange;
pub mod exit;
mod fault;
mod logging;
mod measure;
mod meta;
mod plan;
mod profile;
mod progress;
mod registry;
mod remote;
mod run;
mod scan;
mod selftest;
mod signature;
mod tune;
mod worker;

pub use run::main;
