//! Stores programs, arrays and records without reading the rest of the registry.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::check_file;
use super::{Invocation, MAX_PROGRAM_BYTES, Program, ProgramFormat, RegistryError, SCHEMA, disk, record};
use crate::array::{Fill, MAX_ARRAY_BYTES};
use crate::digest::Digest;
use crate::outside_file;

const KIND: &str = "autotune-lowered-registry";

#[derive(Serialize, Deserialize)]
struct RecordHeader {
    kind: String,
    schema: u64,
}

/// Writes into a registry's folder. Any number of writers can share a folder, because equal names imply equal bytes.
#[derive(Debug, Clone)]
pub struct RegistryWriter {
    root: PathBuf,
}

impl RegistryWriter {
    /// A writer of an existing registry.
    ///
    /// # Errors
    /// If the folder is not a registry or a newer version's.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        let root = root.into();
        check_header(&root)?;
        Ok(Self { root })
    }

    /// A writer of a registry, which is created if there is none.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if the folder cannot be written.
    pub fn create_or_open(root: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        let root = root.into();
        if root.exists() && !root.is_dir() {
            let source = io::Error::new(io::ErrorKind::NotADirectory, "it is a file; name a folder for the registry");
            return Err(RegistryError::Io { path: root, source });
        }
        let header = root.join("registry.json");
        if !header.exists() {
            let bytes = format!("{{\"kind\":\"{KIND}\",\"schema\":{SCHEMA}}}\n");
            disk::write_atomic(&header, bytes.as_bytes())
                .map_err(|source| RegistryError::Io { path: header, source })?;
        }
        Self::open(root)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a program is in the store.
    pub fn program_path(&self, program: &Program) -> PathBuf {
        let digest = program.digest.to_string();
        let shelf = digest.get(..2).unwrap_or_default();
        self.root.join("programs").join(shelf).join(format!("{digest}.{}", program.format.extension()))
    }

    /// A program's path, after checking the digest of its bytes.
    ///
    /// # Errors
    /// If the file cannot be read or its bytes are not those recorded.
    pub fn checked_program_path(&self, program: &Program) -> Result<PathBuf, RegistryError> {
        let path = self.program_path(program);
        check_file(&path, MAX_PROGRAM_BYTES, program.digest).map(|()| path)
    }

    /// Stores a program's bytes. An existing file with the right bytes is left alone; one with other bytes is replaced.
    ///
    /// # Errors
    /// If the folder of programs cannot be written.
    pub fn put_program(
        &self,
        format: ProgramFormat,
        bytes: &[u8],
        semantic_digest: Digest,
        custom_calls: Vec<String>,
    ) -> Result<Program, RegistryError> {
        let program = Program { format, digest: Digest::of(bytes), semantic_digest, custom_calls };
        put(self.program_path(&program), bytes, program.digest, disk::write_atomic)?;
        Ok(program)
    }

    /// Stores an array's bytes and returns the fill that reads them. They are values of a user's run, so the file is
    /// for its owner alone (mode 0600).
    ///
    /// # Errors
    /// If the folder of arrays cannot be written.
    pub fn put_array(&self, bytes: &[u8]) -> Result<Fill, RegistryError> {
        let digest = Digest::of(bytes);
        let path = Path::new("arrays").join(format!("{digest}.bin"));
        put(self.root.join(&path), bytes, digest, disk::write_private)?;
        Ok(Fill::File { path, digest })
    }

    /// Stores an invocation whose programs and arrays are already stored; returns the path of its record.
    ///
    /// # Errors
    /// If the invocation is inconsistent, a program or array of it is not in the store, or it cannot be written.
    pub fn store(&self, invocation: &Invocation) -> Result<PathBuf, RegistryError> {
        invocation.check()?;
        for program in invocation.candidates.iter().filter_map(|candidate| candidate.program.as_ref()) {
            self.checked_program_path(program)?;
        }
        for (_, fill) in invocation.fills() {
            if let Fill::File { path, digest } = fill {
                check_file(&self.root.join(path), MAX_ARRAY_BYTES, *digest)?;
            }
        }
        let io = |path: &Path, source| RegistryError::Io { path: path.to_owned(), source };
        let (path, bytes) = record::encode(invocation).map_err(|error| io(&self.root, io::Error::from(error)))?;
        let path = self.root.join(path);
        disk::write_atomic(&path, &bytes).map_err(|source| io(&path, source))?;
        Ok(path)
    }
}

impl RegistryWriter {
    /// Stores an invocation in place of an earlier state of it, whose record is removed.
    ///
    /// # Errors
    /// Those of [`store`](Self::store). A record that cannot be removed stays: equal calls are merged.
    pub fn replace(&self, before: &Invocation, after: &Invocation) -> Result<PathBuf, RegistryError> {
        let path = self.store(after)?;
        if let Ok((earlier, _)) = record::encode(before)
            && self.root.join(&earlier) != path
        {
            let _ = std::fs::remove_file(self.root.join(earlier));
        }
        Ok(path)
    }
}

/// Writes a file unless it exists with the right bytes.
fn put(
    path: PathBuf,
    bytes: &[u8],
    digest: Digest,
    write: fn(&Path, &[u8]) -> io::Result<()>,
) -> Result<(), RegistryError> {
    if check_file(&path, bytes.len() as u64, digest).is_ok() {
        return Ok(());
    }
    write(&path, bytes).map_err(|source| RegistryError::Io { path, source })
}

fn check_header(root: &Path) -> Result<(), RegistryError> {
    let path = root.join("registry.json");
    let bytes = match outside_file::bytes(&path, 1 << 16) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let is_there = root.exists();
            return Err(if is_there { RegistryError::Missing } else { RegistryError::NoFolder }(root.to_owned()));
        }
        Err(source) => return Err(RegistryError::Io { path, source }),
    };
    let header: RecordHeader = match serde_json::from_slice(&bytes) {
        Ok(header) => header,
        Err(error) => return Err(RegistryError::Header { path, message: error.to_string() }),
    };
    if header.kind != KIND {
        let message = format!("its kind is not `{KIND}`");
        return Err(RegistryError::Header { path, message });
    }
    match header.schema {
        schema if schema == u64::from(SCHEMA) => Ok(()),
        0 => Err(RegistryError::Header { path, message: "there is no schema 0".to_owned() }),
        schema => Err(RegistryError::NewerSchema { path, schema }),
    }
}
