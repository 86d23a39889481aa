//! `measure`: the time of one program's kernels.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::measure::{CompiledWith, MeasureError, MeasureMode, MeasureOptions, measure};
use crate::measured_by::{CacheState, LaunchMode};
use crate::report::MeasuredDocument;
use crate::timer::events::Events;

use super::executables::Executables;
use super::exit;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::named_timer::refuse_replay;
use super::options::{FormatArg, LimitArgs, PluginArgs, cache_state, launch};
use super::programs::ProgramReader;
use super::timers::{TimerArgs, scratch, start_for_profiles};

#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// The program: StableHLO text or bytecode, or a serialized HloModuleProto
    pub program: PathBuf,
    /// Time to report
    #[arg(long, value_enum, default_value_t = MeasureMode::Span)]
    pub mode: MeasureMode,
    /// Also list the time of each kernel, in launch order; with `--mode kernels`
    #[arg(long)]
    pub per_kernel: bool,
    /// Measured iterations, after one for warm-up
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=9_999))]
    pub iterations: u32,
    /// State of the device's caches before every iteration
    #[arg(long, value_parser = cache_state(), default_value = "warm")]
    pub cache_state: CacheState,
    /// How kernels are launched on a GPU [default: as XLA_FLAGS say]
    #[arg(long, value_parser = launch())]
    pub launch: Option<LaunchMode>,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// What runs the program: `jax` or `jax:PYTHON`, `pjrt` if the plugin has a profiler, `command:CMD` [default: jax,
    /// or pjrt with --plugin]
    #[arg(long, value_name = "TIMER")]
    pub timer: Option<String>,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Measures a program and prints its times; a program without kernels is reported, and is not a failure.
pub(super) fn run(args: &MeasureArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.per_kernel && args.mode == MeasureMode::Span {
        let message = "`--per-kernel` needs `--mode kernels`: a span is not the sum of its kernels";
        return Err(Fault::new(exit::USAGE, message));
    }
    let usual = if args.plugin.plugin.is_some() { "pjrt" } else { "jax" };
    let timer = args.timer.clone().unwrap_or_else(|| usual.to_owned());
    refuse_replay(&timer, "; `--timer jax` does")?;
    // a file that is not a program fails before a device is started
    let program =
        ProgramReader::new(&timer, &args.limits).open(&args.program).map_err(|error| fault(&args.program, error))?;
    if let Some(note) = program.compiled_with.as_ref().and_then(CompiledWith::note) {
        tracing::warn!("{note}");
    }
    let scratch = scratch()?;
    let (plugin, limits) = (args.plugin.clone(), args.limits.clone());
    let cache_state = args.cache_state.clone();
    let launch = args.launch.clone();
    let timer = TimerArgs { timer, metric: None, needs_profiles: true, cache_state, launch, plugin, limits };
    let mut timer = start_for_profiles(&timer, &Executables::kept(scratch.path()))?;
    let options = MeasureOptions {
        iterations: args.iterations,
        inputs: args.inputs.options(),
        cache_state: args.cache_state.clone(),
    };
    let measured = measure(&mut *timer, &program, &options, scratch.path(), &Events::default());
    let measured = measured.map_err(|error| fault(&args.program, error))?;
    if measured.measurement.kernels.is_empty() {
        tracing::warn!("no kernels ran: the program gives the device nothing to do");
    }
    let shown = (args.mode, args.per_kernel);
    args.format.write(out, MeasuredDocument::new(&args.program, shown, &program, &*timer, &options, &measured))?;
    Ok(exit::FINE)
}

fn fault(program: &Path, error: MeasureError) -> Fault {
    match (&error, error.is_of_input()) {
        // the worker does not know the user's name for it
        (MeasureError::Failed(failure), true) => Fault::input(format!("`{}`: {failure}", program.display())),
        (_, true) => Fault::input(error),
        (_, false) => Fault::device(error),
    }
}
