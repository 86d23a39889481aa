//! `bench`: figures that anyone can make again without a device.

mod args;
mod peer;
mod search;

pub(super) use args::BenchCommand;
pub(super) use search::run;
