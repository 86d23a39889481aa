//! A program, from its file to a worker's request.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::compiled_with::CompiledWith;
use super::error::MeasureError;
use crate::digest::{Digest, FieldHasher};
use crate::hlo::{
    ModuleForm, ProgramArgument, bytecode_in_f64, compiled_as, in_f64, read_plain, read_program, semantic_digest,
    side_file_of,
};
use crate::outside_file;
use crate::registry::{Program, ProgramFormat};
use crate::timer::{OptionsFile, ProgramFile};

/// Largest program that is read.
pub(crate) const MAX_PROGRAM_BYTES: u64 = 1 << 30;
const MAX_COMPRESSION_LAYERS: usize = 2;

/// A program read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredProgram {
    /// The module's bytes.
    pub(super) bytes: Vec<u8>,
    /// Their form.
    pub format: ProgramFormat,
    /// Whether it may overwrite its arguments with its outputs.
    pub donates: bool,
    /// Number of devices that it runs on, one for each partition.
    pub partitions: u64,
    /// Whether XLA's passes have run on it: compiler options for them then have no effect.
    pub is_optimized: bool,
    /// Its arguments, if the form reports them one by one.
    pub arguments: Option<Vec<ProgramArgument>>,
    /// The names of its results, if the form reports them.
    pub results: Vec<String>,
    /// For each argument, the number of values that it may have as an index, if the form reports it.
    pub index_ranges: Vec<Option<u64>>,
    /// The compile options where it is used, from its side file.
    pub compiled_with: Option<CompiledWith>,
}

impl MeasuredProgram {
    /// Reads StableHLO, as text or bytecode, or a serialized `HloModuleProto` or `HloProto`; any of them may be
    /// compressed with gzip or zstd.
    ///
    /// # Errors
    /// If the file cannot be read, is not a program or HLO text, or runs on several devices.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        Self::open_with(path, &[], |_| Err(MeasureError::HloText { path: path.to_owned() }))
    }

    /// The same, but accepts a program for several devices, because compiling needs none of them.
    ///
    /// # Errors
    /// If the file or its side file cannot be read, or it is not a program or HLO text.
    pub fn open_to_compile(path: &Path) -> Result<Self, MeasureError> {
        let read = Self::read(&read_file(path)?, path, |_| Err(MeasureError::HloText { path: path.to_owned() }));
        let program = read.map_err(|error| match error {
            // a program for several devices is accepted
            MeasureError::Partitioned { path, partitions } => MeasureError::PartitionedText { path, partitions },
            error => error,
        })?;
        Ok(Self { compiled_with: compile_options_of(path, &[])?, ..program })
    }

    /// The same, but converts HLO text to a serialized `HloModuleProto`, and passes over the side file's values of
    /// options that the user sets, which are those in `own`.
    ///
    /// # Errors
    /// As [`open`](Self::open), and errors of `to_proto`.
    pub fn open_with(
        path: &Path,
        own: &[String],
        to_proto: impl FnOnce(&[u8]) -> Result<Vec<u8>, MeasureError>,
    ) -> Result<Self, MeasureError> {
        Ok(Self {
            compiled_with: compile_options_of(path, own)?,
            ..Self::read(&read_file(path)?, path, to_proto)?.on_one_device(path)?
        })
    }

    /// The same for bytes that were read already; `path` is their name in errors.
    pub(crate) fn of_bytes(bytes: &[u8], path: &Path) -> Result<Self, MeasureError> {
        let not_text = |_: &[u8]| Err(MeasureError::HloText { path: path.to_owned() });
        Self::read(bytes, path, not_text)?.on_one_device(path)
    }

    fn on_one_device(self, path: &Path) -> Result<Self, MeasureError> {
        match self.partitions {
            0 | 1 => Ok(self),
            partitions => Err(MeasureError::Partitioned { path: path.to_owned(), partitions }),
        }
    }

    fn read(
        bytes: &[u8],
        path: &Path,
        to_proto: impl FnOnce(&[u8]) -> Result<Vec<u8>, MeasureError>,
    ) -> Result<Self, MeasureError> {
        let place = path.display().to_string();
        let mut program = read_program(bytes, &place)?;
        let partitions = program.partitions;
        let converted;
        if program.form == ModuleForm::HloText && !program.is_optimized {
            if partitions > 1 {
                // the converted form does not contain the number
                return Err(MeasureError::Partitioned { path: path.to_owned(), partitions });
            }
            converted = to_proto(bytes)?;
            program = read_program(&converted, &place)?;
        }
        let format = match program.form {
            ModuleForm::StablehloText => ProgramFormat::StablehloText,
            ModuleForm::StablehloBytecode => ProgramFormat::StablehloPortable,
            ModuleForm::HloProto => ProgramFormat::HloProto,
            ModuleForm::HloText | ModuleForm::DumpFolder => {
                return Err(MeasureError::OptimizedText { path: path.to_owned() });
            }
        };
        let (donates, arguments, results) = (program.donates, program.arguments(&place)?, program.results());
        let index_ranges = program.index_ranges();
        let (bytes, is_optimized) = (program.bytes.to_vec(), program.is_optimized);
        Ok(Self {
            bytes,
            format,
            donates,
            partitions,
            is_optimized,
            arguments,
            results,
            index_ranges,
            compiled_with: None,
        })
    }

    /// A generated program, as StableHLO text, that overwrites none of its arguments.
    pub fn of_text(text: &str) -> Self {
        Self {
            bytes: text.as_bytes().to_vec(),
            format: ProgramFormat::StablehloText,
            donates: false,
            partitions: 1,
            is_optimized: false,
            arguments: None,
            results: Vec::new(),
            index_ranges: Vec::new(),
            compiled_with: None,
        }
    }

    /// Whether the module lists this many arguments one by one.
    pub(super) fn tells_arguments(&self, count: usize) -> bool {
        self.arguments.as_ref().is_some_and(|arguments| arguments.len() == count)
    }

    /// The path of an argument, empty if unknown, and whether the program may overwrite it. If the module does not list
    /// its arguments one by one and may overwrite any, it may overwrite all.
    pub(crate) fn argument(&self, index: usize, count: usize) -> (&str, bool) {
        let known = self.arguments.as_ref().filter(|arguments| arguments.len() == count);
        let known = known.and_then(|arguments| arguments.get(index));
        known.map_or(("", self.donates), |argument| (argument.path.as_str(), argument.is_donated))
    }

    /// The number of values that an argument may have as an index, if known.
    pub(super) fn index_range(&self, index: usize, count: usize) -> Option<u64> {
        let known = Some(&self.index_ranges).filter(|ranges| ranges.len() == count)?;
        known.get(index).copied().flatten()
    }

    /// The same program with every floating-point array in `f64`, also its arguments and results.
    ///
    /// # Errors
    /// Why it cannot be converted, in a few words.
    pub fn in_f64(&self) -> Result<Self, String> {
        if self.partitions > 1 {
            return Err("the module runs on several devices".to_owned());
        }
        let bytes = match self.format {
            ProgramFormat::StablehloText => {
                let text = std::str::from_utf8(&self.bytes).map_err(|_| "its text is not UTF-8".to_owned())?;
                in_f64(text).map(String::into_bytes)
            }
            ProgramFormat::StablehloPortable => bytecode_in_f64(&self.bytes),
            _ => return Err("the module is not StableHLO".to_owned()),
        };
        let bytes = bytes.map_err(|error| error.to_string())?;
        Ok(Self { bytes, ..self.clone() })
    }

    /// Digest of its StableHLO text without locations and names, if it is StableHLO.
    pub fn stablehlo_digest(&self) -> Option<Digest> {
        let is_text = self.format == ProgramFormat::StablehloText;
        is_text.then(|| semantic_digest(&self.bytes, "").ok()).flatten()
    }

    /// Digest of what it computes, if its form reveals that; otherwise of its bytes.
    pub fn meaning(&self) -> Digest {
        semantic_digest(&self.bytes, "").unwrap_or_else(|_| self.digest())
    }

    /// Digest of its bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Identifies it among compiled programs: its bytes and its compile options.
    pub fn identity(&self) -> Digest {
        let Some(with) = &self.compiled_with else { return self.digest() };
        let mut hasher = FieldHasher::new("program and what its compiler is told, 1");
        hasher.field(self.digest().as_bytes()).field(with.digest().as_bytes());
        hasher.finish()
    }

    /// Writes it where a worker reads it, with its compile options beside it.
    ///
    /// # Errors
    /// If the file already exists, or cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<ProgramFile, MeasureError> {
        let path = folder.join(format!("{name}.{}", self.format.extension()));
        write_file(&path, &self.bytes)?;
        let semantic_digest = self.identity();
        let program = Program { format: self.format, digest: self.digest(), semantic_digest, custom_calls: Vec::new() };
        let mut file = ProgramFile::new(path, program);
        if let Some(with) = &self.compiled_with {
            let path = folder.join(format!("{name}.compile-options"));
            write_file(&path, &with.bytes)?;
            file.compile_options = Some(OptionsFile::new(path, with.digest()).named(with.overrides()));
        }
        Ok(file)
    }
}

/// A file's bytes, uncompressed.
fn read_file(path: &Path) -> Result<Vec<u8>, MeasureError> {
    let mut bytes = outside_file::open(path, MAX_PROGRAM_BYTES)
        .and_then(|file| outside_file::read(file, MAX_PROGRAM_BYTES))
        .map_err(|source| MeasureError::Unreadable { path: path.to_owned(), source })?;
    for _ in 0..MAX_COMPRESSION_LAYERS {
        bytes = read_plain(bytes, MAX_PROGRAM_BYTES, &path.display().to_string())?;
    }
    Ok(bytes)
}

/// The compile options in a module's side file.
fn compile_options_of(path: &Path, own: &[String]) -> Result<Option<CompiledWith>, MeasureError> {
    let side = compiled_as(path).map_err(MeasureError::SideFile)?;
    let Some(bytes) = side.and_then(|side| side.compile_options) else { return Ok(None) };
    let wrong = |source| MeasureError::CompileOptions { path: side_file_of(path), source };
    CompiledWith::read(&bytes, own).map(Some).map_err(wrong)
}

pub(super) fn write_file(path: &PathBuf, bytes: &[u8]) -> Result<(), MeasureError> {
    // must be a new file: a worker that is already running may have created one in its place
    let written = File::create_new(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| MeasureError::Scratch { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_advises_on_hlo_text_of_several_partitions() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "HloModule jit_f, num_partitions=4\n\nENTRY main.2 {\n  ROOT x.1 = f32[8]{0} parameter(0)\n}\n";
        std::fs::write(file.path(), text).unwrap();
        let message_of = |opened: Result<MeasuredProgram, MeasureError>| opened.unwrap_err().to_string();
        let to_compile = message_of(MeasuredProgram::open_to_compile(file.path()));
        assert!(
            to_compile.contains("is HLO text of 4 partitions") && to_compile.contains("give StableHLO"),
            "{to_compile}"
        );
        let to_measure = message_of(MeasuredProgram::open(file.path()));
        assert!(to_measure.contains("give one that runs on one device"), "{to_measure}");
        std::fs::write(file.path(), text.replace(", num_partitions=4", "")).unwrap();
        let whole = message_of(MeasuredProgram::open_to_compile(file.path()));
        assert!(whole.contains("is HLO text, which no plugin compiles"), "{whole}");
    }
}
