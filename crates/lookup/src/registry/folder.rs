//! The registry's folder: opening, reading and writing it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::disk::{MAX_PROGRAM_BYTES, read_checked, visible_entries};
use super::{
    Invocation, ProblemKind, Program, RecordChange, RegistryError, RegistryProblem, RegistryWriter, merge, record,
};
use crate::array::{Fill, MAX_ARRAY_BYTES, argument_seed, generate};
use crate::hlo::read_program;
use crate::outside_file;

/// A registry's folder and the invocations in it.
#[derive(Debug)]
pub struct Registry {
    writer: RegistryWriter,
    invocations: Vec<Arc<Invocation>>,
    problems: Vec<RegistryProblem>,
    changes: Vec<RecordChange>,
    records: usize,
}

impl Registry {
    /// Opens a registry and reads every record.
    ///
    /// # Errors
    /// If the folder is not a registry or a newer version's. A bad record is not an error but a
    /// [problem](Self::problems).
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        Self::read(RegistryWriter::open(root)?)
    }

    /// The registry of a module by default: `registry` beside it.
    pub fn beside(module: &Path) -> PathBuf {
        module.parent().unwrap_or(Path::new("")).join("registry")
    }

    /// Opens a registry, creating an empty one if there is none.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if the folder cannot be written.
    pub fn create_or_open(root: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        Self::read(RegistryWriter::create_or_open(root)?)
    }

    fn read(writer: RegistryWriter) -> Result<Self, RegistryError> {
        let (invocations, problems, changes) = (Vec::new(), Vec::new(), Vec::new());
        let mut registry = Self { writer, invocations, problems, changes, records: 0 };
        registry.reload()?;
        Ok(registry)
    }

    /// Reads every record again, as another recorder may have written more.
    ///
    /// # Errors
    /// If the folder `invocations` exists and cannot be listed.
    pub fn reload(&mut self) -> Result<(), RegistryError> {
        let (paths, mut problems) = self.record_paths()?;
        let read: Vec<_> = paths.par_iter().map(|path| (path, record::read(path))).collect();
        let mut by_key: BTreeMap<_, Vec<record::StoredRecord>> = BTreeMap::new();
        self.records = 0;
        for (path, outcome) in read {
            match outcome {
                Ok(record) => {
                    self.records += 1;
                    let invocation = &record.invocation;
                    let call = (invocation.call.op_id.clone(), invocation.call.call_key.clone());
                    let order = (call, invocation.direction, invocation.key());
                    by_key.entry(order).or_default().push(record);
                }
                Err((kind, message)) => problems.push(RegistryProblem { path: path.clone(), kind, message }),
            }
        }
        self.invocations.clear();
        self.changes.clear();
        for (invocation, changes) in by_key.into_values().filter_map(merge::merge) {
            self.invocations.push(Arc::new(invocation));
            self.changes.extend(changes);
        }
        problems.sort();
        self.problems = problems;
        Ok(())
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.writer.root()
    }

    /// The writer of programs, arrays and records in this folder.
    pub fn writer(&self) -> &RegistryWriter {
        &self.writer
    }

    /// Every invocation, by operation and call key; records of one call are merged.
    pub fn invocations(&self) -> &[Arc<Invocation>] {
        &self.invocations
    }

    /// Records that were skipped.
    pub fn problems(&self) -> &[RegistryProblem] {
        &self.problems
    }

    /// Calls whose records disagree.
    pub fn changes(&self) -> &[RecordChange] {
        &self.changes
    }

    /// Number of good records.
    pub fn record_count(&self) -> usize {
        self.records
    }

    /// Where a program is in the store.
    pub fn program_path(&self, program: &Program) -> PathBuf {
        self.writer.program_path(program)
    }

    /// A program's path, after checking the digest of its bytes.
    ///
    /// # Errors
    /// If the file cannot be read or its bytes are not those recorded.
    pub fn checked_program_path(&self, program: &Program) -> Result<PathBuf, RegistryError> {
        self.writer.checked_program_path(program)
    }

    /// The number of a program's partitions, one for each device that it runs on; one if it cannot be read or does not
    /// state it. The digest of its bytes is not checked.
    pub fn partitions(&self, program: &Program) -> u64 {
        let bytes = outside_file::bytes(&self.program_path(program), MAX_PROGRAM_BYTES).unwrap_or_default();
        read_program(&bytes, "program").map_or(1, |program| program.partitions)
    }

    /// The bytes of an invocation's argument: generated from its fill, or read from the registry.
    ///
    /// The seed is [`argument_seed`] of the name and the index, the same for every candidate.
    ///
    /// # Errors
    /// If the fill does not fit the type, its file is not good, or its values are unknown.
    pub fn argument_bytes(&self, invocation: &Invocation, index: usize) -> Result<Vec<u8>, RegistryError> {
        let Some(argument) = invocation.arguments.get(index) else { return Ok(Vec::new()) };
        let Fill::File { path, digest } = &argument.fill else {
            let seed = argument_seed(&argument.name, index as u64);
            return generate(&argument.spec, &argument.fill, seed)
                .map_err(|source| RegistryError::Fill { name: argument.name.clone(), source });
        };
        invocation.check()?;
        let path = self.root().join(path);
        let expected = argument.spec.host_bytes().unwrap_or(u64::MAX);
        let bytes = read_checked(path.clone(), MAX_ARRAY_BYTES, *digest)?;
        if bytes.len() as u64 != expected {
            let name = argument.name.clone();
            return Err(RegistryError::ArraySize { path, found: bytes.len() as u64, name, expected });
        }
        Ok(bytes)
    }

    /// [Stores](RegistryWriter::store) an invocation and reads the registry again.
    ///
    /// # Errors
    /// Those of [`store`](RegistryWriter::store), and if the registry cannot be read again.
    pub fn add(&mut self, invocation: &Invocation) -> Result<PathBuf, RegistryError> {
        let path = self.writer.store(invocation)?;
        self.reload()?;
        Ok(path)
    }

    /// Every record's path, sorted, and the folders that could not be listed.
    fn record_paths(&self) -> Result<(Vec<PathBuf>, Vec<RegistryProblem>), RegistryError> {
        let top = self.root().join("invocations");
        let mut problems = Vec::new();
        let mut paths = BTreeSet::new();
        let folders = match visible_entries(&top) {
            Ok(folders) => folders,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(RegistryError::Io { path: top, source }),
        };
        for folder in folders {
            match visible_entries(&folder) {
                Ok(files) => {
                    paths.extend(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "json")))
                }
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => {
                    let (kind, message) = (ProblemKind::Unreadable, error.to_string());
                    problems.push(RegistryProblem { path: folder, kind, message });
                }
            }
        }
        Ok((paths.into_iter().collect(), problems))
    }
}
