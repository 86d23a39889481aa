//! The modules whose compiler options are tuned: one file, or the folder of a dump.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::candidates::OptionSet;
use crate::config::Config;
use crate::counted::{counted, listed};
use crate::digest::Digest;
use crate::hlo::{ScanOptions, compiled_as, earlier_stage, modules_before_passes, scan_path, side_file_of};
use crate::measure::{CompiledWith, MeasureError, MeasuredProgram};
use crate::tune::StepProfile;

use super::exit;
use super::fault::Fault;
use super::option_setting::settings_of;
use super::programs::ProgramReader;

/// One module, read before any device is started.
pub(super) struct OptionFile {
    /// Its file's name.
    pub(super) name: String,
    /// The module's own name, as a profile shows it.
    pub(super) module: Option<String>,
    pub(super) program: MeasuredProgram,
    /// Digest of its StableHLO text, by which a process finds the entry; otherwise why there can be none.
    pub(super) key: Result<Digest, String>,
    /// `XLA_FLAGS` of the process that runs it, if known.
    pub(super) flags: Vec<(String, Value)>,
    /// Its `LIBTPU_INIT_ARGS`, likewise.
    pub(super) tpu_flags: Vec<(String, Value)>,
    /// Options that its user set for this program alone.
    pub(super) named: Vec<(String, Value)>,
    /// A note on it.
    pub(super) note: Option<String>,
}

/// The modules at a path.
pub(super) struct OptionFiles {
    pub(super) modules: Vec<OptionFile>,
    /// Whether they come from a folder.
    pub(super) are_of_folder: bool,
    /// One line on what is skipped in a folder.
    pub(super) left_aside: Option<String>,
}

impl OptionFiles {
    /// Orders the modules by their time in a step, and gives each its share. Modules with the same name divide theirs;
    /// those that the step does not run come last.
    pub(super) fn by_time(&mut self, step: &StepProfile) -> Vec<f64> {
        let share = |file: &OptionFile, all: &[OptionFile]| {
            let of_name = all.iter().filter(|other| other.module == file.module).count().max(1);
            file.module.as_ref().map_or(0.0, |name| step.share_of_module(name) / of_name as f64)
        };
        let shares: Vec<f64> = self.modules.iter().map(|file| share(file, &self.modules)).collect();
        let mut both: Vec<(f64, OptionFile)> = shares.into_iter().zip(std::mem::take(&mut self.modules)).collect();
        both.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let (shares, modules) = both.into_iter().unzip();
        self.modules = modules;
        shares
    }
}

/// The digest by which a process finds a module's compiler options, if its form or its side file provides it.
pub(super) fn key_of(path: &Path) -> Option<Digest> {
    if path == Path::new("-") || path.is_dir() {
        return None;
    }
    // a side file's claim about a text may be wrong
    let own = MeasuredProgram::open(path).ok().and_then(|program| program.stablehlo_digest());
    own.or_else(|| compiled_as(path).ok().flatten()?.stablehlo_digest)
}

/// Reads a module, or every module of a dump folder as it is before XLA's passes.
pub(super) fn read(path: &Path, programs: &ProgramReader<'_>) -> Result<OptionFiles, Fault> {
    if path == Path::new("-") {
        return Err(Fault::new(exit::USAGE, "`--compiler-options` needs a file: standard input is read once"));
    }
    if path.is_dir() {
        return read_folder(path, programs);
    }
    match read_file(path, programs) {
        Ok(module) => Ok(OptionFiles { modules: vec![module], are_of_folder: false, left_aside: None }),
        Err(SkipReason::Optimized) => Err(Fault::input(optimized(path))),
        Err(SkipReason::Program(error)) => Err(Fault::input(error)),
        Err(SkipReason::SideFile(message)) => Err(Fault::input(message)),
    }
}

/// Why a file is skipped.
enum SkipReason {
    Optimized,
    Program(MeasureError),
    SideFile(String),
}

fn read_file(path: &Path, programs: &ProgramReader<'_>) -> Result<OptionFile, SkipReason> {
    let program = match programs.open(path) {
        Ok(program) if program.is_optimized => return Err(SkipReason::Optimized),
        Ok(program) => program,
        Err(MeasureError::OptimizedText { .. }) => return Err(SkipReason::Optimized),
        Err(error @ (MeasureError::SideFile(_) | MeasureError::CompileOptions { .. })) => {
            return Err(SkipReason::SideFile(error.to_string()));
        }
        Err(error) => return Err(SkipReason::Program(error)),
    };
    let side = compiled_as(path).map_err(|error| SkipReason::SideFile(error.to_string()))?.unwrap_or_default();
    let place = || format!("the side file `{}`", side_file_of(path).display());
    // a process computes the text's digest
    let own = program.stablehlo_digest();
    let note = own.zip(side.stablehlo_digest).filter(|(own, claimed)| own != claimed).map(|(own, claimed)| {
        let (own, claimed) = (own.to_short(), claimed.to_short());
        format!("{} has the StableHLO digest {claimed} for a text whose digest is {own}; the text's counts", place())
    });
    let key = own.or(side.stablehlo_digest).ok_or_else(no_key);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // a failed scan was reported when the module was read
    let module = scan_path(path, &ScanOptions::default()).ok().and_then(|scan| scan.module);
    let named: Vec<(String, Value)> = program.compiled_with.iter().flat_map(|with| with.named.clone()).collect();
    OptionSet::from_config(&Config::new(named.iter().cloned().collect())).map_err(|error| {
        SkipReason::SideFile(format!("{} has an option that no compiler takes: {error}; write it again", place()))
    })?;
    let flags = settings_of(side.xla_flags.as_deref().unwrap_or_default());
    let tpu_flags = settings_of(side.libtpu_init_args.as_deref().unwrap_or_default());
    Ok(OptionFile { name, module, program, key, flags, tpu_flags, named, note })
}

fn read_folder(folder: &Path, programs: &ProgramReader<'_>) -> Result<OptionFiles, Fault> {
    let dumped = modules_before_passes(folder).map_err(Fault::input)?;
    // by reason, so that many modules share one line
    let mut aside: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut put_aside = |reason: &str, name: String| aside.entry(reason.to_owned()).or_default().push(name);
    for name in dumped.only_later {
        put_aside("there is only HLO from after XLA's passes", name);
    }
    let mut modules: Vec<OptionFile> = Vec::new();
    let mut seen = BTreeSet::new();
    for path in &dumped.files {
        let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_file(path, programs) {
            // a program with other options is another program
            Ok(module) if !seen.insert((module.program.meaning(), compile_options_of(&module.program))) => {
                put_aside("the same program as another one", module.name);
            }
            Ok(module) => modules.push(module),
            Err(SkipReason::Optimized) => put_aside("HLO from after XLA's passes", name()),
            Err(SkipReason::SideFile(message)) => put_aside(&message, name()),
            Err(SkipReason::Program(error)) => put_aside(reason(&error), name()),
        }
    }
    let count: usize = aside.values().map(Vec::len).sum();
    let parts = aside
        .iter()
        .map(|(reason, names)| format!("{} ({reason})", listed(names.iter().map(|name| format!("`{name}`")))));
    let of = modules.len() + count;
    let line = (count > 0).then(|| format!("skipped, {count} of {}: {}", counted(of, "module"), listed(parts)));
    let names = dumped.sub_folders.iter().map(|name| format!("`{name}`"));
    let within = (names.len() > 0).then(|| format!("sub-folders with modules, which are not read: {}", listed(names)));
    let line = line.into_iter().chain(within).reduce(|one, other| format!("{one}; {other}"));
    if modules.is_empty() {
        let message =
            format!("`{}`: no module can be tuned; {}; {HOW_TO_DUMP}", folder.display(), line.unwrap_or_default());
        return Err(Fault::input(message));
    }
    Ok(OptionFiles { modules, are_of_folder: true, left_aside: line })
}

/// What distinguishes programs of one meaning.
fn compile_options_of(program: &MeasuredProgram) -> Option<Digest> {
    program.compiled_with.as_ref().map(CompiledWith::digest)
}

/// The same words for every file of a folder with the same problem.
fn reason(error: &MeasureError) -> &'static str {
    match error {
        MeasureError::HloText { .. } => {
            "HLO text, which needs an active Python with JAX, or a dump with `--xla_dump_hlo_as_proto`"
        }
        MeasureError::NotConverted { .. } => "HLO text that JAX does not read",
        MeasureError::Partitioned { .. } => "a program of several devices",
        _ => "cannot be read",
    }
}

const HOW_TO_DUMP: &str = "run with `XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto'`, or write StableHLO \
                           with `autotune_lowered.dump(lowered, \"module.mlir\")`";

/// What to pass instead of an optimized module.
fn optimized(path: &Path) -> String {
    let place = path.display();
    let problem = "is HLO from after XLA's passes, on which compiler options no longer have an effect";
    match earlier_stage(path) {
        Some(earlier) => {
            format!("`{place}`: {problem}; give `{}`, which is the same module before them", earlier.display())
        }
        None => format!("`{place}`: {problem}; for the stage before them {HOW_TO_DUMP}"),
    }
}

fn no_key() -> String {
    "this form does not have the digest of its StableHLO text; tune the text, or a module that \
     `autotune_lowered.dump` wrote"
        .to_owned()
}
