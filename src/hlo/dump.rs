//! A folder that XLA dumped: which of its files to read.
//!
//! `--xla_dump_to` writes `module_0001.jit_f.before_optimizations.txt`, `….cpu_after_optimizations.txt` and much that is
//! no module; `JAX_DUMP_IR_TO` writes `jax_ir0000_jit_f_compile.mlir`. Of each module the earliest stage is read, since
//! conversion and optimisation only lose labels: StableHLO, then before optimisation, then what else there is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::detect::{self, Content};
use super::error::{ScanError, ScanErrorKind};
use super::found::{Diagnosis, FoundLabel, ModuleForm, Scan};
use crate::outside_file;

const MAX_FILES: usize = 100_000;
const MAX_LISTED: usize = 12;

/// Stage of a file, earliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Stablehlo,
    Before,
    Between,
    After,
}

struct Candidate {
    path: PathBuf,
    name: String,
    stage: Stage,
}

/// Scans the modules of a dump folder, each by `scan_file`, and merges their labels.
pub(crate) fn scan(folder: &Path, scan_file: impl Fn(&Path) -> Result<Scan, ScanError>) -> Result<Scan, ScanError> {
    let place = folder.display().to_string();
    let unreadable = |error| ScanErrorKind::Unreadable(error).at(&place);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(ScanErrorKind::TooLarge {
                what: "the number of files in this folder".to_owned(),
                limit: MAX_FILES as u64,
                advice: "give one module's file instead",
            }
            .at(&place));
        }
    }
    files.sort();
    let chosen = choose(files.iter().filter_map(|path| candidate(path)));
    if chosen.is_empty() {
        return Err(ScanErrorKind::NoModuleInFolder { files: files.len() }.at(&place));
    }
    let mut scans = Vec::new();
    let mut diagnosis = Vec::new();
    for path in &chosen {
        match scan_file(path) {
            Ok(scan) => scans.push(scan),
            Err(error) => {
                diagnosis.push(Diagnosis { code: "module-unreadable".to_owned(), message: error.to_string() });
            }
        }
    }
    let listed: Vec<String> = chosen
        .iter()
        .take(MAX_LISTED)
        .map(|path| format!("`{}`", path.file_name().unwrap_or_default().to_string_lossy()))
        .collect();
    let more =
        if chosen.len() > MAX_LISTED { format!(" and {} more", chosen.len() - MAX_LISTED) } else { String::new() };
    diagnosis.insert(
        0,
        Diagnosis {
            code: "dump-folder".to_owned(),
            message: format!(
                "read {} of {} files, the earliest stage of each module: {}{more}",
                scans.len(),
                files.len(),
                listed.join(", ")
            ),
        },
    );
    Ok(merge(scans, diagnosis))
}

fn candidate(path: &Path) -> Option<Candidate> {
    use std::io::Read as _;
    let file_name = path.file_name()?.to_string_lossy().into_owned();
    let mut head = Vec::new();
    outside_file::open(path, u64::MAX).ok()?.take(detect::HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    let form = match detect::detect(&head).ok()? {
        Content::Module(form) => Some(form),
        Content::Gzip | Content::Zstd => None,
    };
    let is_mlir = file_name.contains(".mlir") || file_name.starts_with("jax_ir");
    let stage = match form {
        Some(ModuleForm::StablehloText | ModuleForm::StablehloBytecode) => Stage::Stablehlo,
        None if is_mlir => Stage::Stablehlo,
        _ if file_name.contains("before_optimizations") => Stage::Before,
        _ if file_name.contains("after_optimizations") => Stage::After,
        _ => Stage::Between,
    };
    Some(Candidate { path: path.to_owned(), name: module_name(&file_name), stage })
}

/// `jit_f` of `module_0001.jit_f.before_optimizations.txt` and of `jax_ir0000_jit_f_compile.mlir`.
fn module_name(file_name: &str) -> String {
    if let Some(rest) = file_name.strip_prefix("jax_ir") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('_');
        let stem = rest.split('.').next().unwrap_or_default();
        return stem.strip_suffix("_compile").unwrap_or(stem).to_owned();
    }
    let mut parts = file_name.split('.');
    match parts.next() {
        Some(first) if first.starts_with("module_") => parts.next().unwrap_or_default().to_owned(),
        first => first.unwrap_or_default().to_owned(),
    }
}

/// The earliest stage of each module; a module is told by its file name up to the stage.
fn choose(candidates: impl Iterator<Item = Candidate>) -> Vec<PathBuf> {
    let mut by_name: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_name.entry(candidate.name.clone()).or_default().push(candidate);
    }
    let mut chosen = Vec::new();
    for candidates in by_name.into_values() {
        let Some(earliest) = candidates.iter().map(|candidate| candidate.stage).min() else { continue };
        let mut seen = std::collections::BTreeSet::new();
        for candidate in candidates.into_iter().filter(|candidate| candidate.stage == earliest) {
            // the same stage as text and as a proto is one module; between stages only the first is read
            let file_name = candidate.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let key = match earliest {
                Stage::Stablehlo => file_name,
                _ => file_name.split('.').next().unwrap_or_default().to_owned(),
            };
            if seen.insert(key) {
                chosen.push(candidate.path);
            }
        }
    }
    chosen
}

fn merge(scans: Vec<Scan>, mut diagnosis: Vec<Diagnosis>) -> Scan {
    let mut labels: Vec<FoundLabel> = Vec::new();
    let partitioned = scans.first().and_then(|scan| scan.partitioned);
    let partitioned = partitioned.filter(|_| scans.iter().all(|scan| scan.partitioned == partitioned));
    let module = match scans.as_slice() {
        [only] => only.module.clone(),
        _ => None,
    };
    for scan in scans {
        for label in scan.labels {
            match labels.iter_mut().find(|known| known.label == label.label && known.family == label.family) {
                Some(known) => {
                    known.occurrences += label.occurrences;
                    known.backward |= label.backward;
                    known.mapped |= label.mapped;
                    let room = FoundLabel::MAX_CALL_SITES.saturating_sub(known.call_sites.len());
                    known.call_sites.extend(label.call_sites.into_iter().take(room));
                }
                None => labels.push(label),
            }
        }
        for said in scan.diagnosis {
            if !diagnosis.contains(&said) {
                diagnosis.push(said);
            }
        }
    }
    labels.sort_by(|a, b| (&a.label, &a.family).cmp(&(&b.label, &b.family)));
    Scan { module, partitioned, diagnosis, ..Scan::new(ModuleForm::DumpFolder, labels) }
}
