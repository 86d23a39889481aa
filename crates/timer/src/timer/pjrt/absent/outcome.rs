//! The result of compiling programs for a target: now, or in an earlier run that a store remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::signature::PublicKeys;
use crate::timer::pjrt::compile::{CompileNote, CompiledFor, ExecutableStore, ListedExecutable, believed};
use crate::timer::protocol::{CostAnalysis, KernelUse, MemoryStats};

/// The result of compiling a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum CompileOutcome {
    /// It compiles.
    Compiled {
        /// Time of the compilation, seconds.
        seconds: f64,
        /// Bytes of the serialized executable.
        executable_bytes: u64,
        /// Device memory of a run, if the compiler reports it.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryStats>,
        /// Its kernels' use of GPU resources; empty if unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kernels: Vec<KernelUse>,
        /// Why they are unknown, for a GPU's program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernels_unknown: Option<String>,
        /// The compiler's cost analysis of a run, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<CostAnalysis>,
        /// Whether the result was known from an earlier run.
        reused: bool,
    },
    /// The compiler refused it.
    Refused {
        /// The compiler's message.
        reason: String,
        /// Time of the attempt, seconds.
        seconds: f64,
        /// Whether the result was known from an earlier run.
        reused: bool,
    },
    /// Undecided, because a worker died or took too long. The next run tries again.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Refusals that are not believed.
#[derive(Debug, Default)]
pub(super) struct UnbelievedRefusals {
    stores: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    reasons: BTreeSet<String>,
}

impl UnbelievedRefusals {
    pub(super) fn add(&mut self, store: &Path, file: PathBuf, why: String) {
        self.stores.insert(format!("`{}`", store.display()));
        self.files.insert(file);
        self.reasons.insert(why);
    }

    /// How many, and why; `then` says what follows for the program of one, and for those of several.
    pub(super) fn note(&self, then: &str, then_all: &str) -> Option<String> {
        let (count, then) = match self.files.len() {
            0 => return None,
            1 => ("is not believed", format!("its program {then}")),
            _ => ("are not believed", format!("their programs {then_all}")),
        };
        let join = |texts: &BTreeSet<String>| texts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let (refusals, stores) = (counted(self.files.len(), "refusal"), join(&self.stores));
        Some(format!(
            "{refusals} of {stores} {count} ({}), and {then}: name the key of whoever compiled there with \
             `--verify-key`",
            join(&self.reasons)
        ))
    }
}

/// The result of every program that a store has for targets, by the target's program. If several programs and compilers
/// apply, those used last count. Refusals count only from who is trusted; a line says how many do not.
///
/// # Errors
/// If there is no store.
pub fn kept_outcomes(
    store: &Path,
    trusted: &[PublicKeys],
) -> io::Result<(BTreeMap<CompiledFor, CompileOutcome>, Option<String>)> {
    let mut listed = ExecutableStore::list(store)?.listed;
    listed.sort_by_key(|listed| listed.used);
    let mut unbelieved = UnbelievedRefusals::default();
    let mut outcomes = BTreeMap::new();
    for ListedExecutable { path, digest, note, payload_bytes, .. } in listed {
        let Some(mut note) = note else { continue };
        let Some(of) = note.of.take() else { continue };
        if note.refused.is_some()
            && let Err(why) = believed(&path, digest, trusted)
        {
            unbelieved.add(store, path, why);
            continue;
        }
        outcomes.insert(of, outcome_of(note, payload_bytes, true));
    }
    Ok((outcomes, unbelieved.note("counts as unknown", "count as unknown")))
}

pub(super) fn outcome_of(note: CompileNote, executable_bytes: u64, reused: bool) -> CompileOutcome {
    let CompileNote { compile_ns, memory, kernels, kernels_unknown, cost, refused, .. } = note;
    let seconds = compile_ns as f64 / 1e9;
    match refused {
        Some(reason) => CompileOutcome::Refused { reason, seconds, reused },
        None => CompileOutcome::Compiled { seconds, executable_bytes, memory, kernels, kernels_unknown, cost, reused },
    }
}
