//! The program, from its file to what a worker takes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::MeasureError;
use crate::digest::Digest;
use crate::hlo::{ModuleForm, read_program};
use crate::registry::{Program, ProgramFormat};
use crate::timer::ProgramFile;

/// Largest program that is read.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// A program that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredProgram {
    /// The module's bytes.
    pub(super) bytes: Vec<u8>,
    /// Their form.
    pub format: ProgramFormat,
    /// Whether it may write its outputs over its arguments.
    pub donates: bool,
}

impl MeasuredProgram {
    /// Reads StableHLO, as text or bytecode, or a serialized `HloModuleProto` or `HloProto`.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        let bytes = read_whole(path, MAX_PROGRAM_BYTES)
            .map_err(|source| MeasureError::Unreadable { path: path.to_owned(), source })?;
        let program = read_program(&bytes, &path.display().to_string())?;
        if program.partitions > 1 {
            return Err(MeasureError::Partitioned { path: path.to_owned(), partitions: program.partitions });
        }
        let format = match program.form {
            ModuleForm::StablehloText => ProgramFormat::StablehloText,
            ModuleForm::StablehloBytecode => ProgramFormat::StablehloPortable,
            ModuleForm::HloProto => ProgramFormat::HloProto,
            ModuleForm::HloText | ModuleForm::DumpFolder => {
                return Err(MeasureError::HloText { path: path.to_owned() });
            }
        };
        let (donates, bytes) = (program.donates, program.bytes.to_vec());
        Ok(Self { bytes, format, donates })
    }

    /// A program of our own, as StableHLO text, that writes nothing over its arguments.
    pub fn of_text(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), format: ProgramFormat::StablehloText, donates: false }
    }

    /// Digest of its bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Writes it where a worker reads it.
    pub(super) fn write(&self, folder: &Path, name: &str) -> Result<ProgramFile, MeasureError> {
        let path = folder.join(format!("{name}.{}", self.format.extension()));
        write_file(&path, &self.bytes)?;
        let digest = self.digest();
        // one program is compared with no other
        let program = Program { format: self.format, digest, semantic_digest: digest, custom_calls: Vec::new() };
        Ok(ProgramFile { path, program })
    }
}

pub(super) fn write_file(path: &PathBuf, bytes: &[u8]) -> Result<(), MeasureError> {
    std::fs::write(path, bytes).map_err(|source| MeasureError::Scratch { path: path.clone(), source })
}

/// A regular file within a bound: a pipe might never end.
fn read_whole(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("more than the {} MiB that a program may have", limit >> 20)));
    }
    Ok(bytes)
}
