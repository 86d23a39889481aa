//! The sources themselves: floors, generated code, documents, the corpus of the fuzzers.

#[path = "../support/mod.rs"]
mod support;

mod documents;
mod file_graph;
mod floors;
mod fuzz_corpus;
mod generated;
mod json_schemas;
mod packages;
mod pages;
mod prerequisites;
mod source;
mod words;
