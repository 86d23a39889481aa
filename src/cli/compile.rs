//! `compile`: a module's candidates, or the module itself, compiled for devices that may be absent.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::compile::{
    Baseline, CompileResult, CompiledFigure, CompiledTarget, Follower, GrowthLimits, compile_module, compile_plan,
    forecast_module, forecast_plan, write_compile_junit,
};
use crate::counted::{counted, listed};
use crate::measure::MeasureError;
use crate::printable::printable;
use crate::scratch::Scratch;
use crate::target::Target;
use crate::timer::WorkerLimits;
use crate::timer::pjrt::{CompileOutcome, TargetCompiler, TargetOptions, discover};

use super::ending::cancel_flag;
use super::exit;
use super::fault::Fault;
use super::option_setting::{option_set, setting};
use super::options::{FormatArg, LimitArgs, number};
use super::output_file::OutputFile;
use super::plan::{PlanArgs, PlanSource};
use super::recorder::RecorderArg;
use super::say::say;
use super::scan::NoLabels;
use super::signature::StoreSignerArgs;
use super::timers::{scratch, this_program};
use super::tune_args::TuneArgs;

#[derive(Debug, Args)]
pub(super) struct CompileArgs {
    /// The module. If there are recorded invocations, its calls' candidates are compiled, otherwise the module itself
    #[arg(value_name = "MODULE")]
    pub module: PathBuf,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// A device to compile for, which may be absent: `cuda:h100_sxm`, `tpu:v5e`, or a GpuTargetConfigProto as
    /// `cuda:FILE.txtpb`; may be repeated
    #[arg(long = "target", value_name = "TARGET", required = true)]
    pub targets: Vec<String>,
    /// Folder that keeps executables and refusals, so that nothing is compiled again
    #[arg(short = 'o', long = "output", value_name = "STORE")]
    pub store: PathBuf,
    /// Store from another machine: its content is copied, with its signatures, instead of being compiled again; may be
    /// repeated
    #[arg(long, value_name = "STORE")]
    pub compiled: Vec<PathBuf>,
    /// The vendor's PJRT plugin (a shared library) [default: the one for the target's platform, from environment
    /// variables or the active Python environment]
    #[arg(long, value_name = "PATH")]
    pub plugin: Option<PathBuf>,
    /// Earlier store: how each program's figures changed; exit code 7 if a program is newly refused or a figure grew by
    /// more than its limit
    #[arg(long, value_name = "STORE")]
    pub baseline: Option<PathBuf>,
    /// With `--baseline`: by which part a figure may grow, such as `bundles=0.02`: `memory`, `temporary`, `code`,
    /// `executable`, `cycles`, `bundles`, `vmem`, `registers`, `stack`, `shared` or `seconds`; may be repeated
    /// [default: memory=0.1]
    #[arg(long, value_name = "FIGURE=PART", value_parser = growth_limit, requires = "baseline")]
    pub max_growth: Vec<(CompiledFigure, f64)>,
    /// Print how much there is to compile, and compile nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub junit: Option<PathBuf>,
    /// For TPUs: have libtpu dump its low-level IR (LLO), and report each kernel's scheduled bundles and vector memory
    #[arg(long)]
    pub llo: bool,
    /// A compiler option for every program, `NAME=VALUE`; may be repeated
    #[arg(long = "base-options", value_name = "NAME=VALUE", value_parser = setting, allow_hyphen_values = true)]
    pub base_options: Vec<(String, Value)>,
    #[command(flatten)]
    pub recorder: RecorderArg,
    #[command(flatten)]
    pub signer: StoreSignerArgs,
    /// File of public keys; refusals are believed that this user compiled or that one of these keys signed
    /// (docs/targets.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Reports, for `tune --dry-run`, the cost of compiling a module's candidates for its targets.
pub(super) fn forecast(args: &TuneArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let scratch = scratch()?;
    let args = CompileArgs {
        module: args.module.clone(),
        plan: args.plan.clone(),
        targets: args.targets.clone(),
        store: scratch.path().to_owned(),
        compiled: args.compiled.clone(),
        plugin: args.timer.plugin.plugin.clone(),
        baseline: None,
        max_growth: Vec::new(),
        dry_run: true,
        junit: None,
        llo: false,
        base_options: Vec::new(),
        recorder: RecorderArg::default(),
        signer: StoreSignerArgs::default(),
        verify_key: args.cache.verify_key.clone(),
        limits: args.timer.limits.clone(),
        format: args.format.clone(),
    };
    run(&args, bars, out)
}

/// A figure and by which part it may grow.
fn growth_limit(text: &str) -> Result<(CompiledFigure, f64), String> {
    let (name, part) = text.split_once('=').ok_or("expected a figure and a part, such as bundles=0.02")?;
    let names = || listed(CompiledFigure::ALL.into_iter().map(|(_, name)| name.to_owned()));
    let figure =
        CompiledFigure::named(name).ok_or_else(|| format!("`{name}` is no figure: name one of {}", names()))?;
    Ok((figure, number(part, 0.0..=f64::MAX, "a number of at least 0, such as bundles=0.02")?))
}

/// The targets of these names. They are not read with the arguments, so that a wrong one is reported in one line.
fn targets(names: &[String]) -> Result<Vec<Target>, Fault> {
    let named = |name: &String| Target::named(name).map_err(|error| Fault::new(exit::USAGE, error.to_string()));
    names.iter().map(named).collect()
}

/// Compiles for each target and prints the result; refusals are not a failure.
pub(super) fn run(args: &CompileArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let targets = targets(&args.targets)?;
    // everything that would fail after the run fails before it
    let junit = args.junit.as_deref().map(|path| OutputFile::at(path, "report of `--junit`")).transpose()?;
    let mut open = OpenCompile::open(args, targets)?;
    let result = open.compile(bars)?;
    let comparisons = result.targets.iter().filter_map(|target| target.baseline.as_ref());
    let regressed = comparisons.map(|comparison| comparison.regressions.len()).sum::<usize>() > 0;
    if let Some(junit) = junit {
        junit.write(|out| write_compile_junit(out, &result, &open.name))?;
    }
    let outcomes = || result.targets.iter().flat_map(CompiledTarget::outcomes);
    let failed = outcomes().any(|outcome| matches!(outcome, CompileOutcome::Failed { .. }));
    let (interrupted, ended, all) = (result.interrupted, outcomes().count(), result.programs());
    args.format.write(out, result)?;
    if interrupted {
        out.flush()?;
        say(&format!("interrupted, {ended} of {} compiled; run again to go on", counted(all, "program")));
    }
    Ok(match (interrupted, open.is_matched) {
        (true, _) => exit::INTERRUPTED,
        (_, false) => exit::NOTHING_MATCHED,
        _ if regressed => exit::REGRESSED,
        _ if failed => exit::SOME_FAILED,
        _ => exit::FINE,
    })
}

/// A compilation whose compilers are started.
struct OpenCompile<'a> {
    args: &'a CompileArgs,
    compilers: Vec<(Target, TargetCompiler)>,
    baseline: Option<Baseline>,
    /// The module's labelled calls; `None` if the module itself is compiled.
    calls: Option<PlanSource>,
    /// The module's file name.
    name: String,
    /// Whether the module has anything for one of the targets.
    is_matched: bool,
    cancel: Arc<AtomicBool>,
    /// Where a dry run would keep executables.
    _scratch: Option<Scratch>,
}

impl<'a> OpenCompile<'a> {
    fn open(args: &'a CompileArgs, targets: Vec<Target>) -> Result<Self, Fault> {
        let signer = if args.dry_run { None } else { args.signer.signer()?.map(Arc::new) };
        let trusted = args.signer.trusted(args.verify_key.as_deref())?;
        let open = |store: &PathBuf, what: &str| {
            Baseline::open(store, &trusted).map_err(|error| {
                let store = store.display();
                Fault::input(format!("`{store}` is not a store {what}: {error}; name what `compile -o` wrote"))
            })
        };
        let baseline = args.baseline.as_ref().map(|store| open(store, "to compare with")).transpose()?;
        if let Some(note) = baseline.as_ref().and_then(Baseline::note) {
            tracing::warn!("{note}");
        }
        args.compiled.iter().try_for_each(|store| open(store, "of compiled programs").map(drop))?;
        let calls = read(args)?;
        // a dry run leaves nothing behind
        let scratch = (args.dry_run && !args.store.exists()).then(scratch).transpose()?;
        let store = scratch.as_ref().map_or(args.store.as_path(), |scratch| scratch.path());
        let refused = |why: &str, another: &str| {
            let store = store.display();
            Fault::input(format!("`{store}` cannot keep executables: {why}; name {another} with `--output`"))
        };
        if store.exists() && !store.is_dir() {
            return Err(refused("it is no folder", "one"));
        }
        let plugins = targets.iter().map(|target| plugin_for(args, target)).collect::<Result<Vec<_>, Fault>>()?;
        // now, because without a plugin nothing will be kept
        std::fs::create_dir_all(store).map_err(|error| refused(&error.to_string(), "another folder"))?;
        let cancel = cancel_flag()?;
        // a target that cannot be compiled for is reported before the others are compiled
        let start = |(target, plugin): (Target, PathBuf)| {
            let options = options(args, &target, (plugin, store))?.trusted(trusted.clone());
            Ok((target, TargetCompiler::start(&options, signer.clone()).map_err(Fault::device)?))
        };
        let compilers = targets.into_iter().zip(plugins).map(start).collect::<Result<Vec<_>, Fault>>()?;
        let name = args.module.file_name().unwrap_or(args.module.as_os_str()).to_string_lossy().into_owned();
        let is_matched = calls.is_none();
        Ok(Self { args, compilers, baseline, calls, name, is_matched, cancel, _scratch: scratch })
    }

    /// Compiles for one target after the other.
    fn compile(&mut self, bars: &MultiProgress) -> Result<CompileResult, Fault> {
        let mut result = CompileResult::new();
        let given = self.args.max_growth.iter();
        let limits = given.fold(GrowthLimits::default(), |limits, (figure, part)| limits.with(*figure, *part));
        for (target, compiler) in std::mem::take(&mut self.compilers) {
            if self.cancel.load(Ordering::Relaxed) {
                break;
            }
            let mut compiled = self.compile_for(&target, compiler, bars)?;
            if let Some(name) = target.other_figures_of() {
                compiled.notes.push(format!(
                    "`{target}` names the device of `cuda:{name}` and gives other figures for it: what is refused here \
                     is refused on that device too; give it a name of its own in `device_description_str`"
                ));
            }
            let baseline = self.baseline.as_ref().filter(|_| !self.args.dry_run);
            if let Some(baseline) = baseline {
                let comparison = baseline.compare(&compiled, &self.name, &limits);
                compiled.notes.extend(comparison.not_judged(&limits));
                compiled.baseline = Some(comparison);
            }
            result.targets.push(compiled);
        }
        result.interrupted = self.cancel.load(Ordering::Relaxed);
        Ok(result)
    }

    fn compile_for(
        &mut self,
        target: &Target,
        mut compiler: TargetCompiler,
        bars: &MultiProgress,
    ) -> Result<CompiledTarget, Fault> {
        let mut follower = Bar::new(&target.name, bars, &self.cancel);
        let (module, is_dry) = (&self.args.module, self.args.dry_run);
        let compiled = match &self.calls {
            Some(calls) => {
                let mut plan = calls.plan(&compiler.device().identity, &self.args.plan.options())?;
                self.is_matched |= !plan.matched_nothing();
                match self.args.recorder.lowering(&self.args.limits)? {
                    Some(_) if is_dry => {}
                    Some(lowering) => {
                        follower.bar.set_message("lowering");
                        let is_cancelled = || self.cancel.load(Ordering::Relaxed);
                        let lowered = plan.lower(&lowering, &calls.registry, &is_cancelled);
                        lowered.map_err(|failure| Fault::input(failure.message))?;
                    }
                    None => plan.leave_open(),
                }
                match is_dry {
                    true => forecast_plan(&plan, &calls.registry, &target.name, &compiler),
                    false => compile_plan(&plan, &calls.registry, &target.name, &mut compiler, &mut follower)
                        .map_err(Fault::device)?,
                }
            }
            None if is_dry => forecast_module(module, &self.name, &target.name, &compiler).map_err(of_module)?,
            None => {
                compile_module(module, &self.name, &target.name, &mut compiler, &mut follower).map_err(of_module)?
            }
        };
        follower.bar.finish_and_clear();
        Ok(compiled)
    }
}

/// The module's labels and their recordings; `None` if the module itself is compiled.
fn read(args: &CompileArgs) -> Result<Option<PlanSource>, Fault> {
    let named = args.plan.registry.as_deref();
    if named.is_none() && super::registry::folder_for(&args.module, None).is_err() {
        return Ok(None);
    }
    // without recordings the module itself is compiled
    let no_labels = if named.is_some() { NoLabels::Explained } else { NoLabels::Ignored };
    match args.plan.read(&args.module, no_labels)? {
        Ok(source) => Ok(Some(source)),
        Err(_) if named.is_none() => Ok(None),
        // if recordings are named, their candidates are compiled
        Err(_) => Err(Fault::new(
            exit::NOTHING_MATCHED,
            format!("`{}` holds no label: without `--registry` the module itself is compiled", args.module.display()),
        )),
    }
}

fn of_module(error: MeasureError) -> Fault {
    match error {
        MeasureError::Failed(failure) => Fault::device(failure),
        error => Fault::input(error),
    }
}

fn options(args: &CompileArgs, target: &Target, (plugin, store): (PathBuf, &Path)) -> Result<TargetOptions, Fault> {
    Ok(TargetOptions::new(this_program()?, plugin, target.clone(), store)
        .others(args.compiled.clone())
        .compile_jobs(args.limits.compile_jobs.map(usize::from))
        .limits(WorkerLimits::from(&args.limits))
        .overrides(option_set(args.base_options.iter().cloned())?.overrides())
        .llo(args.llo))
}

/// The plugin that compiles for a target.
fn plugin_for(args: &CompileArgs, target: &Target) -> Result<PathBuf, Fault> {
    let found = discover(args.plugin.as_deref(), args.plugin.is_none().then_some(target.platform.as_str()));
    let found = found.map_err(|failure| {
        if args.plugin.is_some() {
            return Fault::device(format!("target `{target}`: {}", failure.message));
        }
        let advice = match target.platform.as_str() {
            "tpu" => {
                "activate a Python environment that has it (`jax[tpu]` brings libtpu), or name libtpu.so with \
                      `--plugin`"
            }
            _ => {
                "install the one of the JAX that recorded (`pip install --no-deps jax-cuda13-pjrt==VERSION \
                 nvidia-cuda-nvcc nvidia-nvvm`) or name it with `--plugin`"
            }
        };
        // the usual advice names the plugin for this machine, which does not compile for the target
        let why = failure.message.split(": name one with").next().unwrap_or_default();
        Fault::device(format!("target `{target}`: {why}; {advice}"))
    })?;
    let plugin = found.into_iter().next().map(|plugin| plugin.path);
    plugin.ok_or_else(|| Fault::device(format!("target `{target}`: no PJRT plugin")))
}

/// Draws the progress.
struct Bar<'a> {
    bar: ProgressBar,
    cancel: &'a AtomicBool,
}

impl<'a> Bar<'a> {
    fn new(target: &str, bars: &MultiProgress, cancel: &'a AtomicBool) -> Self {
        let bar = bars.add(ProgressBar::new(0));
        if let Ok(style) = ProgressStyle::with_template("{prefix} {pos}/{len} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(printable(target));
        Self { bar, cancel }
    }
}

impl Follower for Bar<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn done(&mut self, operation: &str, _outcome: &CompileOutcome, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(printable(operation));
    }
}
