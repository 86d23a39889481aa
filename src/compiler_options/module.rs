//! What is tuned, and its result.

use std::sync::Arc;

use crate::cache::{CacheKey, Entry};
use crate::call::{Call, Direction};
use crate::candidates::{OptionChoice, OptionScope, OptionSet};
use crate::counted::{counted, listed};
use crate::digest::{Digest, FieldHasher};
use crate::ledger::LedgerError;
use crate::measure::{InputOptions, MeasureError, MeasuredProgram};
use crate::tune::{OperationResult, Status, TuneError};

use super::OPERATION;

/// A module, and the options that may change when it is compiled.
#[derive(Debug, Clone)]
pub struct OptionModule {
    /// The module.
    pub program: MeasuredProgram,
    /// Digest of its StableHLO text without locations, by which a process finds the entry; otherwise why there can be
    /// no entry.
    pub key: Result<Digest, String>,
    /// Options that are always set.
    pub base: OptionSet,
    /// Options that may be added. A set with an option of a whole process becomes no entry, because no single program
    /// can be compiled with it.
    pub choices: Vec<OptionChoice>,
    /// How its inputs are made.
    pub inputs: InputOptions,
}

impl OptionModule {
    /// A module with the compiler's own options as its base.
    pub fn new(program: MeasuredProgram, key: Result<Digest, String>, choices: Vec<OptionChoice>) -> Self {
        Self { program, key, base: OptionSet::default(), choices, inputs: InputOptions::default() }
    }

    /// What would be tuned; nothing is compiled.
    pub fn planned(&self) -> OperationResult {
        let call = call(self.key.as_ref().copied().unwrap_or_else(|_| self.program.digest()));
        OperationResult {
            occurrences: 1,
            how: "the module itself".to_owned(),
            status: Status::Planned,
            reason: format!("{} of compiler options", counted(self.choices.len(), "value")),
            flags: self.key.as_ref().err().map(|why| not_cached(why)).into_iter().collect(),
            ..OperationResult::undecided(call, Direction::Forward, self.base.to_config())
        }
    }
}

/// The call of a module.
pub(super) fn call(digest: Digest) -> Call {
    Call::new(OPERATION, digest.to_string())
}

/// Hashes the choices, because a decision depends on them.
pub(super) fn hash_choices(choices: &[OptionChoice], hasher: &mut FieldHasher) {
    for choice in choices {
        hasher.field(choice.set.to_config().as_str().as_bytes());
        if choice.scope == OptionScope::Process {
            hasher.field(b"\0process");
        }
    }
}

/// The reason why a set with these options of a whole process becomes no entry.
pub(super) fn not_of_one_program(names: &[&str]) -> String {
    let names = names.iter().map(|name| format!("`{name}`"));
    not_cached(&format!("{} acts on a process, not on one compilation: set it in the process's flags", listed(names)))
}

/// The note on a module without a key.
pub(super) fn not_cached(why: &str) -> String {
    format!("not in the cache: {why}")
}

/// The result.
#[derive(Debug)]
pub struct TunedOptions {
    /// The result, in the form of an operation.
    pub operation: OperationResult,
    /// The entry that was committed or found.
    pub entry: Option<(CacheKey, Arc<Entry>)>,
}

/// Why nothing could be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionTuneError {
    /// The module or its inputs cannot be used.
    #[error(transparent)]
    Inputs(#[from] MeasureError),
    /// A store or the scratch folder failed.
    #[error(transparent)]
    Fatal(#[from] TuneError),
}

impl From<LedgerError> for OptionTuneError {
    fn from(error: LedgerError) -> Self {
        Self::Fatal(error.into())
    }
}
