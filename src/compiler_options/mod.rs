//! The compiler options of a whole module: which set of them runs it fastest with the same outputs.
//!
//! [`tune_compiler_options`] takes a module and [choices](crate::candidates::Choice) of options. Each choice is
//! compiled beside the base by itself; choices that compile to one executable are one candidate. The promising ones are
//! combined, step by step. The remaining ones are measured once more, in new rounds: the base, a second compilation of
//! the base, and every part of the best set. A set wins by those rounds alone, so that no luck of the first ones
//! decides.
//!
//! [`tune_shared_options`] finds one set for all modules of a process, which loses on none of them.
//!
//! The result is one [`OperationResult`](crate::tune::OperationResult) of the operation [`OPERATION`], whose call key is the digest of
//! the module's StableHLO text without locations.

mod entry;
mod failed;
mod module;
mod precise;
mod race;
mod rescue;
mod settle;
mod shared;
mod shared_verdict;
mod special;
mod variant;
mod verdict;

pub use module::{OptionModule, OptionTuneError, TunedOptions};
pub use settle::tune_compiler_options;
pub use shared::{SharedModule, SharedOptions, tune_shared_options};

/// The operation that entries of compiler options belong to.
pub const OPERATION: &str = "compiler_options@v1";
