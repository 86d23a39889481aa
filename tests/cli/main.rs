//! The program as a user runs it, and its reports.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod bench;
mod bisect;
mod cache;
mod candidates;
mod check;
mod compare;
mod compile;
mod compile_baseline;
mod compile_module;
mod compile_recorded;
mod compile_tools;
mod compiled;
mod compiled_with;
mod compiler_options;
mod config;
mod endless;
mod kernels;
mod log_folder;
mod measure;
mod peaks;
mod precise_options;
mod process_options;
mod prove;
mod recorders;
mod report_html;
mod report_plots;
mod report_upgrade;
mod selftest;
mod short_table;
mod simulated_gpu;
mod simulated_store;
mod simulated_tpu;
mod transcripts;
mod tune;
mod upgrade;
mod view;
