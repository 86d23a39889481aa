//! The compiler options of a whole module: which set of them runs it fastest with the same outputs.
//!
//! [`tune_compiler_options`] takes a module and [choices](crate::candidates::OptionChoice) of options. It compiles each
//! choice alone, beside the base. Choices that compile to the same executable are one candidate. It combines the
//! promising ones step by step and measures the best set again in new rounds, beside the base, a second compilation of
//! the base, and every part of the set. Only these rounds decide whether a set wins, because the choice of the set by
//! the first rounds favours lucky ones.
//!
//! [`tune_shared_options`] finds one set for all modules of a process. It is slower on none of them.
//!
//! The result is one [`OperationResult`](crate::tune::OperationResult) of the operation [`OPERATION`], whose call key
//! is the digest of the module's StableHLO text without locations.

mod entry;
mod failed;
mod module;
mod precise;
mod race;
mod rescue;
mod rows;
mod settle;
mod shared;
mod shared_sets;
mod shared_verdict;
mod special_values;
mod variant;
mod verdict;

pub use module::{OptionModule, OptionTuneError, TunedOptions};
pub use settle::tune_compiler_options;
pub use shared::{SharedModule, SharedOptions, tune_shared_options};

/// The operation of the entries for compiler options.
pub const OPERATION: &str = "compiler_options@v1";
