//! Captures of profilers, and their analyses.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod collectives;
mod compile;
mod devices;
mod diff;
mod flamegraph;
mod layouts;
mod log_folders;
mod mosaic;
mod nsys;
mod nsys_notebook;
mod oracles;
mod payloads_and_meshes;
mod perfetto;
mod programs;
mod real_gpus;
mod summary;
mod timings;
mod trace;
mod xprof;
