//! The files of an XLA or JAX dump folder: the module of each, and its stage of compilation.
//!
//! `--xla_dump_to` writes `module_0001.jit_f.before_optimizations.txt`, `….cpu_after_optimizations.txt`, with more
//! flags `….0003.simplification.after_….txt`, and much that is not a module. `JAX_DUMP_IR_TO` writes
//! `jax_ir0000_jit_f_compile.mlir`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::compressed;
use super::detect::{self, Content};
use super::error::ScanError;
use super::error::ScanErrorKind;
use super::found::ModuleForm;
use crate::outside_file;

const MAX_FILES: usize = 100_000;
const MAX_COMPRESSION_LAYERS: usize = 2;

/// Stage of a file, earliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Stablehlo,
    Before,
    /// Its name states no stage, or one between two passes.
    Between,
    After,
}

/// A file of a module.
struct DumpFile {
    path: PathBuf,
    /// `jit_f`.
    module: String,
    /// `module_0001`, or another prefix of its name. Unlike the module's name, it distinguishes two shapes of one
    /// function.
    number: String,
    stage: Stage,
}

/// The files of a folder.
pub(super) struct DumpFiles {
    files: Vec<DumpFile>,
    /// Number of all files, including those of no module.
    pub(super) count: usize,
}

/// The modules of a folder, each as it is before XLA's passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpedModules {
    /// The file of each module, by name. A file whose name states no stage may be of any stage.
    pub files: Vec<PathBuf>,
    /// The file names of modules of which only a later stage exists.
    pub only_later: Vec<String>,
}

impl DumpFiles {
    /// Examines every file of a folder and its first bytes.
    pub(super) fn of(folder: &Path) -> Result<Self, ScanErrorKind> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(ScanErrorKind::Unreadable)? {
            let path = entry.map_err(ScanErrorKind::Unreadable)?.path();
            if path.is_file() {
                paths.push(path);
            }
            if paths.len() > MAX_FILES {
                return Err(ScanErrorKind::TooLarge {
                    what: "the number of files in this folder".to_owned(),
                    limit: MAX_FILES as u64,
                    advice: "give one module's file instead",
                });
            }
        }
        paths.sort();
        let files: Vec<DumpFile> = paths.iter().filter_map(|path| dump_file(path)).collect();
        if files.is_empty() {
            return Err(ScanErrorKind::NoModuleInFolder { files: paths.len() });
        }
        Ok(Self { files, count: paths.len() })
    }

    /// The earliest stage of each module; a module is recognized by its file name up to the stage.
    pub(super) fn earliest(&self) -> Vec<&Path> {
        let mut chosen = Vec::new();
        for files in self.by(|file| &file.module).into_values() {
            let Some(earliest) = files.iter().map(|file| file.stage).min() else { continue };
            chosen.extend(at_stage(&files, earliest));
        }
        chosen
    }

    fn by<'a>(&'a self, key: impl Fn(&'a DumpFile) -> &'a str) -> BTreeMap<&'a str, Vec<&'a DumpFile>> {
        let mut groups: BTreeMap<&str, Vec<&DumpFile>> = BTreeMap::new();
        for file in &self.files {
            groups.entry(key(file)).or_default().push(file);
        }
        groups
    }

    fn before_passes(&self) -> DumpedModules {
        let mut found = DumpedModules::default();
        for files in self.by(|file| &file.module).into_values() {
            if files.iter().any(|file| file.stage == Stage::Stablehlo) {
                found.files.extend(at_stage(&files, Stage::Stablehlo).into_iter().map(Path::to_owned));
                continue;
            }
            let mut by_number: BTreeMap<&str, Vec<&DumpFile>> = BTreeMap::new();
            for file in files {
                by_number.entry(&file.number).or_default().push(file);
            }
            for (number, files) in by_number {
                // XLA names the stages of its own dumps; the names of other files are the user's
                let is_named = number.starts_with("module_");
                let stage = [Stage::Before, Stage::Between]
                    .into_iter()
                    .filter(|stage| !is_named || *stage == Stage::Before)
                    .find(|stage| files.iter().any(|file| file.stage == *stage));
                match stage {
                    Some(stage) => found.files.extend(at_stage(&files, stage).into_iter().map(Path::to_owned)),
                    None => found.only_later.extend(files.last().map(|file| file_name(&file.path))),
                }
            }
        }
        found.files.sort();
        found
    }
}

/// The modules of a folder before XLA's passes, because compiler options still affect these.
///
/// # Errors
/// A folder that cannot be read, or that holds no module.
pub fn modules_before_passes(folder: &Path) -> Result<DumpedModules, ScanError> {
    let files = DumpFiles::of(folder).map_err(|kind| kind.at(&folder.display().to_string()))?;
    Ok(files.before_passes())
}

/// The file of the same module before XLA's passes, which is beside one from after them.
pub fn earlier_stage(file: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (module, number) = names(&file_name(file));
    let files = DumpFiles::of(folder).ok()?.files.into_iter();
    let mut files: Vec<DumpFile> =
        files.filter(|other| other.module == module && other.stage <= Stage::Before && other.path != file).collect();
    // the number distinguishes several shapes of one function
    files.sort_by_key(|other| (other.number != number, other.stage));
    files.into_iter().next().filter(|found| found.number == number || !number.starts_with("module_")).map(|it| it.path)
}

/// The files of a stage without duplicates: the same stage as text and as a proto is one module, and of those between
/// passes only the first is read.
fn at_stage<'a>(files: &[&'a DumpFile], stage: Stage) -> Vec<&'a Path> {
    let mut seen = BTreeSet::new();
    let of_stage = files.iter().filter(|file| file.stage == stage);
    let first = of_stage.filter(|file| {
        seen.insert(match stage {
            Stage::Stablehlo => file_name(&file.path),
            _ => file.number.clone(),
        })
    });
    first.map(|file| file.path.as_path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn dump_file(path: &Path) -> Option<DumpFile> {
    let file = outside_file::open(path, u64::MAX).ok()?;
    let form = match form_of(Box::new(file), 0) {
        Ok(form) => Some(form?),
        // the reader of the file reports this
        Err(_) => None,
    };
    let name = file_name(path);
    let stage = match form {
        Some(ModuleForm::StablehloText | ModuleForm::StablehloBytecode) => Stage::Stablehlo,
        _ if ["before_optimizations", "unoptimized_snapshot"].iter().any(|stage| name.contains(stage)) => Stage::Before,
        _ if name.contains("after_optimizations") => Stage::After,
        _ => Stage::Between,
    };
    let (module, number) = names(&name);
    Some(DumpFile { path: path.to_owned(), module, number, stage })
}

/// The form of a file's content, compressed or not; `None` if it is not a module.
fn form_of(mut reader: Box<dyn Read>, layers: usize) -> io::Result<Option<ModuleForm>> {
    let mut head = Vec::new();
    reader.by_ref().take(detect::HEAD_BYTES as u64).read_to_end(&mut head)?;
    let content = detect::detect(&head).ok();
    let whole = io::Cursor::new(head).chain(reader);
    match content {
        Some(Content::Module(form)) => Ok(Some(form)),
        Some(Content::Exported) => Ok(Some(ModuleForm::StablehloBytecode)),
        Some(Content::Gzip) if layers < MAX_COMPRESSION_LAYERS => {
            form_of(Box::new(compressed::gzip(whole)), layers + 1)
        }
        Some(Content::Zstd) if layers < MAX_COMPRESSION_LAYERS => {
            form_of(Box::new(compressed::zstd(whole)), layers + 1)
        }
        _ => Ok(None),
    }
}

/// `jit_f` and `module_0001` of `module_0001.jit_f.before_optimizations.txt`; `jit_f` of
/// `jax_ir0000_jit_f_compile.mlir`.
fn names(file_name: &str) -> (String, String) {
    let mut parts = file_name.split('.');
    let number = parts.next().unwrap_or_default();
    if let Some(rest) = file_name.strip_prefix("jax_ir") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('_');
        let stem = rest.split('.').next().unwrap_or_default();
        return (stem.strip_suffix("_compile").unwrap_or(stem).to_owned(), number.to_owned());
    }
    let module = if number.starts_with("module_") { parts.next().unwrap_or_default() } else { number };
    (module.to_owned(), number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_is_the_stage_before_the_passes() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let hlo = "HloModule jit_f\n";
        for name in [
            "module_0001.jit_f.before_optimizations.txt",
            "module_0001.jit_f.cpu_after_optimizations.txt",
            "module_0003.jit_f.before_optimizations.txt",
            "module_0005.jit_g.0001.simplification.after_x.before_y.txt",
            "module_0005.jit_g.cpu_after_optimizations.txt",
            "module_0007.jit_h.before_optimizations.txt",
            "own.hlo.txt",
            "own.cpu_after_optimizations.txt",
        ] {
            put(name, hlo);
        }
        put("module_0001.jit_f.debug_options", "x: 1");
        put("jax_ir0003_jit_h_compile.mlir", "module @jit_h {}\n");
        put("notes.txt.gz", "\x1f");
        let found = modules_before_passes(folder.path()).unwrap();
        let names: Vec<String> = found.files.iter().map(|path| file_name(path)).collect();
        let wanted = [
            "jax_ir0003_jit_h_compile.mlir",
            "module_0001.jit_f.before_optimizations.txt",
            "module_0003.jit_f.before_optimizations.txt",
            "own.hlo.txt",
        ];
        assert_eq!(names, wanted);
        assert_eq!(found.only_later, ["module_0005.jit_g.cpu_after_optimizations.txt"]);
        for (after, before) in [
            ("module_0001.jit_f.cpu_after_optimizations.txt", Some(wanted[1])),
            ("module_0005.jit_g.cpu_after_optimizations.txt", None),
            // compiled elsewhere under another number
            ("module_0009.jit_f.cpu_after_optimizations.txt", None),
        ] {
            let found = earlier_stage(&folder.path().join(after)).map(|path| file_name(&path));
            assert_eq!(found.as_deref(), before, "{after}");
        }
    }
}
