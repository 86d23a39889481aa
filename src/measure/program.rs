//! The program, from its file to what a worker takes.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::compiled_with::CompiledWith;
use super::error::MeasureError;
use crate::digest::{Digest, FieldHasher};
use crate::hlo::{
    ModuleForm, ProgramArgument, compiled_as, in_f64, read_plain, read_program, semantic_digest, side_file_of,
};
use crate::outside_file;
use crate::registry::{Program, ProgramFormat};
use crate::timer::{OptionsFile, ProgramFile};

/// Largest program that is read.
pub(crate) const MAX_PROGRAM_BYTES: u64 = 1 << 30;
const MAX_COMPRESSION_LAYERS: usize = 2;

/// A program that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredProgram {
    /// The module's bytes.
    pub(super) bytes: Vec<u8>,
    /// Their form.
    pub format: ProgramFormat,
    /// Whether it may write its outputs over its arguments.
    pub donates: bool,
    /// On how many devices it runs, one for each partition.
    pub partitions: u64,
    /// Whether XLA's passes have run over it: options of the compiler that steer them do nothing any more.
    pub is_optimized: bool,
    /// Its arguments, if the form reports them one by one.
    pub arguments: Option<Vec<ProgramArgument>>,
    /// What its results are called, if the form reports it.
    pub results: Vec<String>,
    /// Of each argument how many values it may have as an index, if the form reports it.
    pub index_ranges: Vec<Option<u64>>,
    /// What its compiler is told of it where it is used, as its side file says.
    pub compiled_with: Option<CompiledWith>,
}

impl MeasuredProgram {
    /// Reads StableHLO, as text or bytecode, or a serialized `HloModuleProto` or `HloProto`; any of them may be compressed with gzip
    /// or zstd.
    ///
    /// # Errors
    /// If the file cannot be read, is not a program or HLO text, or runs on several devices.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        Self::open_with(path, |_| Err(MeasureError::HloText { path: path.to_owned() }))
    }

    /// The same, also where it runs on several devices: what is only compiled needs none of them.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a program or HLO text.
    pub fn open_to_compile(path: &Path) -> Result<Self, MeasureError> {
        let read = Self::read(&read_file(path)?, path, |_| Err(MeasureError::HloText { path: path.to_owned() }));
        read.map_err(|error| match error {
            // that it runs on several devices is nothing against it
            MeasureError::Partitioned { path, partitions } => MeasureError::PartitionedText { path, partitions },
            error => error,
        })
    }

    /// The same, where HLO text becomes a serialized `HloModuleProto`.
    ///
    /// # Errors
    /// As of [`open`](Self::open), and what `to_proto` says.
    pub fn open_with(
        path: &Path,
        to_proto: impl FnOnce(&[u8]) -> Result<Vec<u8>, MeasureError>,
    ) -> Result<Self, MeasureError> {
        Ok(Self { compiled_with: told(path)?, ..Self::read(&read_file(path)?, path, to_proto)?.on_one_device(path)? })
    }

    /// The same of the bytes of a file that is read already; `path` is what errors call it.
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
                // what it becomes does not tell them
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

    /// A program of our own, as StableHLO text, that writes nothing over its arguments.
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

    /// Whether the module tells its arguments one by one, as many as these.
    pub(super) fn tells_arguments(&self, count: usize) -> bool {
        self.arguments.as_ref().is_some_and(|arguments| arguments.len() == count)
    }

    /// The path of an argument, empty if it is not known, and whether the program may write over it. Where the module does
    /// not tell its arguments one by one, a program that writes over any may write over all.
    pub(crate) fn argument(&self, index: usize, count: usize) -> (&str, bool) {
        let known = self.arguments.as_ref().filter(|arguments| arguments.len() == count);
        let known = known.and_then(|arguments| arguments.get(index));
        known.map_or(("", self.donates), |argument| (argument.path.as_str(), argument.is_donated))
    }

    /// How many values an argument may have as an index, where that is known.
    pub(super) fn index_range(&self, index: usize, count: usize) -> Option<u64> {
        let known = Some(&self.index_ranges).filter(|ranges| ranges.len() == count)?;
        known.get(index).copied().flatten()
    }

    /// The same program with every floating-point array in `f64`, also its arguments and results.
    ///
    /// # Errors
    /// Why there is none, in a few words.
    pub fn in_f64(&self) -> Result<Self, String> {
        if self.format != ProgramFormat::StablehloText {
            return Err("the module is not StableHLO text".to_owned());
        }
        if self.partitions > 1 {
            return Err("the module runs on several devices".to_owned());
        }
        let text = std::str::from_utf8(&self.bytes).map_err(|_| "its text is not UTF-8".to_owned())?;
        let bytes = in_f64(text).map_err(|error| error.to_string())?.into_bytes();
        Ok(Self { bytes, ..self.clone() })
    }

    /// Digest of its StableHLO text without locations and names, where it is one.
    pub fn stablehlo_digest(&self) -> Option<Digest> {
        let is_text = self.format == ProgramFormat::StablehloText;
        is_text.then(|| semantic_digest(&self.bytes, "").ok()).flatten()
    }

    /// Digest of what it computes, where its form tells that; else of its bytes.
    pub fn meaning(&self) -> Digest {
        semantic_digest(&self.bytes, "").unwrap_or_else(|_| self.digest())
    }

    /// Digest of its bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// What tells it from others that are compiled: its bytes, and what the compiler is told of it besides.
    pub fn identity(&self) -> Digest {
        let Some(with) = &self.compiled_with else { return self.digest() };
        let mut hasher = FieldHasher::new("program and what its compiler is told, 1");
        hasher.field(self.digest().as_bytes()).field(with.digest().as_bytes());
        hasher.finish()
    }

    /// Writes it where a worker reads it, and what the compiler is told of it beside it.
    ///
    /// # Errors
    /// If the file is there already, or cannot be written.
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

/// What the side file of a module says that its compiler is told.
fn told(path: &Path) -> Result<Option<CompiledWith>, MeasureError> {
    let side = compiled_as(path).map_err(MeasureError::SideFile)?;
    let Some(bytes) = side.and_then(|side| side.compile_options) else { return Ok(None) };
    let wrong = |source| MeasureError::CompileOptions { path: side_file_of(path), source };
    CompiledWith::read(&bytes).map(Some).map_err(wrong)
}

pub(super) fn write_file(path: &PathBuf, bytes: &[u8]) -> Result<(), MeasureError> {
    // a worker that runs already may have put something in its place: it must be new
    let written = File::create_new(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| MeasureError::Scratch { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hlo_text_of_several_partitions_is_told_what_to_do_by_each_command() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "HloModule jit_f, num_partitions=4\n\nENTRY main.2 {\n  ROOT x.1 = f32[8]{0} parameter(0)\n}\n";
        std::fs::write(file.path(), text).unwrap();
        let told = |opened: Result<MeasuredProgram, MeasureError>| opened.unwrap_err().to_string();
        let to_compile = told(MeasuredProgram::open_to_compile(file.path()));
        assert!(
            to_compile.contains("is HLO text of 4 partitions") && to_compile.contains("give StableHLO"),
            "{to_compile}"
        );
        let to_measure = told(MeasuredProgram::open(file.path()));
        assert!(to_measure.contains("give one that runs on one device"), "{to_measure}");
        std::fs::write(file.path(), text.replace(", num_partitions=4", "")).unwrap();
        let whole = told(MeasuredProgram::open_to_compile(file.path()));
        assert!(whole.contains("is HLO text, which no plugin compiles"), "{whole}");
    }
}
