//! Reads and checks every byte of a registry: `registry verify`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use super::disk::{check_file, visible_entries};
use super::{MAX_PROGRAM_BYTES, ProblemKind, RecordChange, Registry, RegistryError, RegistryProblem};
use crate::array::{Fill, MAX_ARRAY_BYTES};
use crate::digest::Digest;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Good records.
    pub records: usize,
    /// Invocations after records of one call were merged.
    pub invocations: usize,
    /// Different programs that the invocations name.
    pub programs: usize,
    /// Different arrays that the invocations name.
    pub arrays: usize,
    /// Calls whose records disagree.
    pub changes: Vec<RecordChange>,
    /// Invalid files.
    pub problems: Vec<RegistryProblem>,
    /// Stored files that no invocation names; they may be removed.
    pub unused: Vec<PathBuf>,
}

impl VerifyReport {
    /// Whether every file is valid.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Registry {
    /// Checks every program and array that an invocation names, and lists what none names.
    pub fn verify(&self) -> VerifyReport {
        let mut programs = BTreeMap::new();
        let mut arrays = BTreeMap::new();
        for invocation in self.invocations() {
            for program in invocation.candidates.iter().filter_map(|candidate| candidate.program.as_ref()) {
                programs.insert(self.program_path(program), program.digest);
            }
            for (_, fill) in invocation.fills() {
                if let Fill::File { path, digest } = fill {
                    arrays.insert(self.root().join(path), *digest);
                }
            }
        }
        let check = |files: &BTreeMap<PathBuf, Digest>, limit: u64| -> Vec<RegistryProblem> {
            let files: Vec<_> = files.iter().collect();
            files.par_iter().filter_map(|(path, digest)| problem_of(path, check_file(path, limit, **digest))).collect()
        };
        let mut problems = self.problems().to_vec();
        problems.extend(check(&programs, MAX_PROGRAM_BYTES));
        problems.extend(check(&arrays, MAX_ARRAY_BYTES));
        problems.sort();
        let mut unused: Vec<PathBuf> = self.stored_files();
        unused.retain(|path| !programs.contains_key(path) && !arrays.contains_key(path));
        unused.sort();
        VerifyReport {
            records: self.record_count(),
            invocations: self.invocations().len(),
            programs: programs.len(),
            arrays: arrays.len(),
            changes: self.changes().to_vec(),
            problems,
            unused,
        }
    }

    fn stored_files(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| visible_entries(folder).unwrap_or_default();
        let shelves = list(&self.root().join("programs"));
        let mut files: Vec<PathBuf> = shelves.iter().flat_map(|shelf| list(shelf)).collect();
        files.extend(list(&self.root().join("arrays")));
        files
    }
}

fn problem_of(path: &Path, outcome: Result<(), RegistryError>) -> Option<RegistryProblem> {
    let (kind, message) = match outcome.err()? {
        RegistryError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            (ProblemKind::Missing, "a record names it but it is missing; record it again".to_owned())
        }
        RegistryError::Io { source, .. } => (ProblemKind::Unreadable, source.to_string()),
        RegistryError::Digest { found, .. } => {
            (ProblemKind::Digest, format!("its bytes have the digest `{found}`: damaged; record it again"))
        }
        other => (ProblemKind::Unreadable, other.to_string()),
    };
    Some(RegistryProblem { path: path.to_owned(), kind, message })
}
