//! From the bytes of a module to its candidates: labels, recorded invocations, candidates, matching.

#[path = "../support/mod.rs"]
mod support;

mod candidates;
mod cost;
mod envelopes;
mod folders;
mod forms;
mod layouts;
mod matching;
mod memory;
mod oracles;
mod registry_example;
mod registry_fills;
mod registry_folder;
mod scan;
mod semantic;
mod text_as_proto;
