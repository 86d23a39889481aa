//! The files of an XLA or JAX dump folder: the module of each, and its stage of compilation.
//!
//! `--xla_dump_to` writes `module_0001.jit_f.before_optimizations.txt`, `….cpu_after_optimizations.txt`, with more
//! flags `….0003.simplification.after_….txt`, and much that is not a module. `JAX_DUMP_IR_TO` writes
//! `jax_ir0000_jit_f_compile.mlir`. Of one stage as text and as a proto, and of those between passes, one file is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::error::{ScanError, ScanErrorKind};
use super::file_form::form_of;
use super::found::ModuleForm;
use super::sub_folders::{self, SubFolders};
use crate::outside_file;

const MAX_FILES: usize = 100_000;

/// What may follow the name of a user's own file.
const EXTENSIONS: [&str; 10] = ["hlo", "txt", "pb", "mlir", "mlirbc", "bc", "stablehlo", "gz", "zst", "bin"];

/// Stage of a file, earliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Stablehlo,
    Before,
    /// Its name states no stage, or one between two passes.
    Between,
    After,
    /// Its name is that of a module, and its content is none.
    Unrecognized,
}

/// A file of a module.
struct DumpFile {
    path: PathBuf,
    name: ModuleName,
    stage: Stage,
    /// Whether it is an HLO proto, which says more than a text.
    is_proto: bool,
}

/// What a file's name says about its module.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModuleName {
    /// `jit_f`.
    module: String,
    /// `module_0001`, with the time before it if there is one; another file's name without its stage. Unlike the
    /// module's name, it distinguishes two shapes of one function.
    number: String,
    /// Whether XLA numbered it.
    is_numbered: bool,
}

/// The files of a folder.
pub(super) struct DumpFiles {
    files: Vec<DumpFile>,
    /// What has the name of a module and is no file, such as a pipe or a link to nothing.
    pub(super) irregular: Vec<String>,
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
    /// The sub-folders that hold modules, which are not read.
    pub sub_folders: Vec<String>,
}

/// The files of one module name.
#[derive(Default)]
struct NamedFiles<'a> {
    /// What JAX wrote, or a user.
    stablehlo: Vec<&'a DumpFile>,
    /// What XLA wrote, by number.
    numbered: BTreeMap<&'a str, Vec<&'a DumpFile>>,
}

impl DumpFiles {
    /// Examines every file of a folder and its first bytes.
    pub(super) fn of(folder: &Path) -> Result<Self, ScanErrorKind> {
        let (mut paths, mut irregular) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(folder).map_err(ScanErrorKind::Unreadable)? {
            let path = entry.map_err(ScanErrorKind::Unreadable)?.path();
            if path.is_file() {
                paths.push(path);
            } else if !path.is_dir() && is_named_as_module(&file_name(&path)) {
                irregular.push(file_name(&path));
            }
            if paths.len() + irregular.len() > MAX_FILES {
                return Err(ScanErrorKind::TooLarge {
                    what: "the number of files in this folder".to_owned(),
                    limit: MAX_FILES as u64,
                    advice: "give one module's file instead",
                });
            }
        }
        paths.sort();
        irregular.sort();
        let mut files: Vec<DumpFile> = paths.iter().filter_map(|path| dump_file(path)).collect();
        if files.is_empty() {
            return Err(ScanErrorKind::NoModuleInFolder { files: paths.len(), advice: sub_folders::advice(folder) });
        }
        number_snapshots(&mut files);
        Ok(Self { count: paths.len() + irregular.len(), files, irregular })
    }

    /// The earliest stage of each module. JAX numbers its files otherwise than XLA, so where it wrote fewer of a name
    /// than XLA has numbers, the files of these numbers are read too.
    pub(super) fn earliest(&self) -> Vec<&Path> {
        let mut chosen: Vec<&DumpFile> = Vec::new();
        for named in self.by_name().into_values() {
            if named.stablehlo.len() < named.numbered.len() {
                chosen.extend(named.numbered.values().filter_map(|files| files.iter().min_by_key(|file| file.stage)));
            }
            chosen.extend(named.stablehlo);
        }
        chosen.into_iter().map(|file| file.path.as_path()).collect()
    }

    fn by_name(&self) -> BTreeMap<&str, NamedFiles<'_>> {
        let mut groups: BTreeMap<&str, NamedFiles<'_>> = BTreeMap::new();
        for file in &self.files {
            let named = groups.entry(&file.name.module).or_default();
            match file.stage {
                Stage::Stablehlo => named.stablehlo.push(file),
                _ => named.numbered.entry(&file.name.number).or_default().push(file),
            }
        }
        groups
    }

    fn before_passes(&self) -> DumpedModules {
        let mut found = DumpedModules::default();
        for named in self.by_name().into_values() {
            if !named.stablehlo.is_empty() {
                found.files.extend(named.stablehlo.into_iter().map(|file| file.path.clone()));
                continue;
            }
            for files in named.numbered.into_values() {
                // XLA names the stages of its own dumps; the names of other files are the user's
                let is_early = |file: &&&DumpFile| match file.stage {
                    Stage::Between => !file.name.is_numbered,
                    stage => stage != Stage::After,
                };
                match files.iter().filter(is_early).min_by_key(|file| file.stage) {
                    Some(file) => found.files.push(file.path.clone()),
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
    Ok(DumpedModules { sub_folders: SubFolders::of(folder).with_modules, ..files.before_passes() })
}

/// The id of the module in a file, which XLA numbers its files with: 1 of `module_0001.jit_f.after_optimizations.txt`.
pub fn dumped_id(file: &Path) -> Option<i64> {
    let ModuleName { number, is_numbered, .. } = ModuleName::of(&file_name(file));
    number.rsplit_once("module_").filter(|_| is_numbered)?.1.parse().ok()
}

/// The HLO of a folder as devices run it: of each module the last stage, as a proto if there is one.
///
/// # Errors
/// A folder that cannot be read, or that holds no module.
pub fn modules_after_passes(folder: &Path) -> Result<Vec<PathBuf>, ScanError> {
    let files = DumpFiles::of(folder).map_err(|kind| kind.at(&folder.display().to_string()))?;
    let mut last: BTreeMap<(&str, &str), &DumpFile> = BTreeMap::new();
    let rank = |file: &DumpFile| (file.stage == Stage::After, file.is_proto, file.path.clone());
    for file in files.files.iter().filter(|file| file.stage != Stage::Stablehlo) {
        let known = last.entry((&file.name.module, &file.name.number)).or_insert(file);
        if rank(file) > rank(known) {
            *known = file;
        }
    }
    Ok(last.into_values().map(|file| file.path.clone()).collect())
}

/// The file of the same module before XLA's passes, which is beside one from after them.
pub fn earlier_stage(file: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = ModuleName::of(&file_name(file));
    let files = DumpFiles::of(folder).ok()?.files.into_iter();
    let mut files: Vec<DumpFile> = files
        .filter(|other| other.name.module == name.module && other.stage <= Stage::Before && other.path != file)
        .collect();
    // the number distinguishes several shapes of one function
    files.sort_by_key(|other| (other.name.number != name.number, other.stage));
    files.into_iter().next().filter(|found| found.name.number == name.number || !name.is_numbered).map(|it| it.path)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A file that is a module, or is named like one; the reader of the file reports what is wrong with it.
fn dump_file(path: &Path) -> Option<DumpFile> {
    let file = outside_file::open(path, u64::MAX).ok()?;
    let name = file_name(path);
    let form = form_of(file);
    let is_proto = matches!(form, Ok(Some(ModuleForm::HloProto)));
    let stage = match form {
        Ok(None) if !is_named_as_module(&name) => return None,
        Ok(None) => Stage::Unrecognized,
        Ok(Some(ModuleForm::StablehloText | ModuleForm::StablehloBytecode)) => Stage::Stablehlo,
        _ if ["before_optimizations", "unoptimized_snapshot"].iter().any(|stage| name.contains(stage)) => Stage::Before,
        _ if name.contains("after_optimizations") => Stage::After,
        _ => Stage::Between,
    };
    Some(DumpFile { path: path.to_owned(), name: ModuleName::of(&name), stage, is_proto })
}

fn is_named_as_module(name: &str) -> bool {
    let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let stem = plain.strip_suffix(".txt").or_else(|| plain.strip_suffix(".hlo.pb")).unwrap_or_default();
    let is_of_xla = stem.ends_with(".before_optimizations") || stem.ends_with("_after_optimizations");
    is_of_xla || (plain.starts_with("jax_ir") && plain.ends_with(".mlir"))
}

/// XLA writes the time before the number of every snapshot, and before those of other files only if it is told to.
fn number_snapshots(files: &mut [DumpFile]) {
    let plain: BTreeSet<String> = files.iter().map(|file| file.name.number.clone()).collect();
    for file in files.iter_mut().filter(|file| file_name(&file.path).contains(".execution_")) {
        if let Some((_, number)) = file.name.number.split_once('.').filter(|(_, number)| plain.contains(*number)) {
            file.name.number = number.to_owned();
        }
    }
}

impl ModuleName {
    /// `jit_f` and `module_0001` of `module_0001.jit_f.before_optimizations.txt`; `jit_f` of
    /// `jax_ir0000_jit_f_compile.mlir`. `--xla_dump_include_timestamp` puts the microseconds of the first dump before
    /// the number: `1763719200000000.module_0001.jit_f.before_optimizations.txt`.
    fn of(file_name: &str) -> Self {
        let (first, tail) = file_name.split_once('.').unwrap_or((file_name, ""));
        if let Some(name) = first.strip_prefix("jax_ir") {
            let name = name.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('_');
            let module = name.strip_suffix("_compile").unwrap_or(name).to_owned();
            return Self { module, number: first.to_owned(), is_numbered: false };
        }
        let after_time = if first.bytes().all(|byte| byte.is_ascii_digit()) { tail } else { file_name };
        let (number, rest) = after_time.split_once('.').unwrap_or((after_time, ""));
        if number.strip_prefix("module_").is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit())) {
            let number = file_name.get(..file_name.len() - after_time.len() + number.len()).unwrap_or(number);
            let module = rest.split('.').next().unwrap_or_default().to_owned();
            return Self { module, number: number.to_owned(), is_numbered: true };
        }
        // a user's own name, without its stage
        let is_stage = |part: &&str| EXTENSIONS.contains(part) || part.ends_with("_optimizations");
        let more: Vec<&str> = tail.split('.').take_while(|part| !part.is_empty() && !is_stage(part)).collect();
        let own = [&[first], more.as_slice()].concat().join(".");
        Self { module: own.clone(), number: own, is_numbered: false }
    }
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
