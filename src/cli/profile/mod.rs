//! `profile`: analyses of a capture.

mod collectives;
mod compile;
mod diff;
mod flamegraph;
mod input;
mod log_folder;
mod mosaic;
mod run;
mod summary;
mod timings;
pub(super) mod trace;
mod view;

pub(super) use input::read_step;
pub(super) use run::{ProfileCommand, run};
