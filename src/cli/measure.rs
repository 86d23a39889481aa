//! `measure`: what one program's kernels take.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::array::Fill;
use crate::device::DeviceIdentity;
use crate::measure::{Made, MadeInput, MeasureError, MeasureOptions, Measured, MeasuredProgram, WARM_UP, measure};
use crate::measured_by::{CacheState, Source};
use crate::profile::{Finding, Iteration, Measurement};
use crate::report::{Grid, format_ns, write_json, write_line};
use crate::stats::quantile;
use crate::timer::Timer;

use super::args::{CacheStateArg, Format, FormatArg, LimitArgs, PluginArgs};
use super::fault::Fault;
use super::tune::{TimerChoice, start_timer};
use super::{device, exit};

#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// The program: StableHLO text or bytecode, or a serialized HloModuleProto
    pub program: PathBuf,
    /// What is measured
    #[arg(long, value_enum, default_value_t = ModeArg::Span)]
    pub mode: ModeArg,
    /// Also the time of each kernel, in launch order; with `--mode kernels`
    #[arg(long)]
    pub per_kernel: bool,
    /// Iterations that count, after one that does not
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..10_000))]
    pub iterations: u32,
    /// What every iteration finds in the caches of the device
    #[arg(long, value_enum, default_value_t = CacheStateArg::Warm)]
    pub cache_state: CacheStateArg,
    /// Folder of inputs, dense little-endian elements in `0.bin`, `1.bin`, … [default: normal values, zeros for integers]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// What runs the program: `jax` or `jax:PYTHON`, `pjrt` where the plugin has a profiler, `command:CMD`
    #[arg(long, value_name = "TIMER", default_value = "jax")]
    pub timer: String,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// What of a program is measured; the two are not interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModeArg {
    /// The sum of the kernels' durations, without the gaps between them
    Kernels,
    /// From the first kernel's start to the last one's end, with the gaps
    Span,
}

/// Measures a program and prints its times; a program without kernels is said, and is no failure.
pub(super) fn run(args: &MeasureArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.per_kernel && args.mode == ModeArg::Span {
        let message = "`--per-kernel` needs `--mode kernels`: a span is not the sum of its kernels";
        return Err(Fault::new(exit::USAGE, message));
    }
    if args.timer.starts_with("replay:") {
        return Err(Fault::new(exit::USAGE, "`--timer replay:FILE` runs no program; `--timer jax` does"));
    }
    // a file that is no program is known before a device is started
    let program = MeasuredProgram::open(&args.program).map_err(|error| fault(&args.program, error))?;
    let scratch = device::scratch()?;
    let choice = TimerChoice { timer: &args.timer, plugin: &args.plugin, limits: &args.limits, metric: None };
    let mut timer = start_timer(&choice, scratch.path())?;
    let options = MeasureOptions {
        iterations: args.iterations,
        inputs: args.inputs.clone(),
        cache_state: args.cache_state.into(),
    };
    let measured = measure(&mut *timer, &program, &options, scratch.path());
    let measured = measured.map_err(|error| fault(&args.program, error))?;
    if measured.measurement.kernels.is_empty() {
        tracing::warn!("no kernels ran: the program gives the device nothing to do");
    }
    let document = document(args, &program, &*timer, &measured);
    match args.format.format {
        Format::Json => write_json(out, &document)?,
        Format::Table => write_table(out, &document)?,
    }
    Ok(exit::FINE)
}

fn fault(program: &Path, error: MeasureError) -> Fault {
    match (&error, error.is_of_input()) {
        // the worker does not know what the user called it
        (MeasureError::Failed(failure), true) => Fault::input(format!("`{}`: {failure}", program.display())),
        (_, true) => Fault::input(error),
        (_, false) => Fault::device(error),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    program: PathBuf,
    mode: ModeArg,
    timer: String,
    source: Source,
    device: DeviceIdentity,
    iterations: u32,
    warm_up: u32,
    cache_state: CacheState,
    inputs: &'a [MadeInput],
    inputs_given_anew: bool,
    kernels: u64,
    median_ns: Option<f64>,
    quartiles_ns: Option<[f64; 2]>,
    samples: Vec<Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_kernel: Option<Vec<KernelRow>>,
    notes: Vec<String>,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct Sample {
    kernels_ns: f64,
    span_ns: f64,
    busy_ns: f64,
    gaps_ns: f64,
}

#[derive(Serialize)]
struct KernelRow {
    name: String,
    count: u64,
    median_ns: f64,
    mean_ns: f64,
    share: f64,
}

/// Exact as long as it is below 2^53 ps, two and a half hours.
fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

fn document<'a>(
    args: &MeasureArgs,
    program: &MeasuredProgram,
    timer: &dyn Timer,
    measured: &'a Measured,
) -> Document<'a> {
    let Measurement { iterations, kernels } = &measured.measurement;
    let has_kernels = !kernels.is_empty();
    let time = |iteration: &Iteration| match args.mode {
        ModeArg::Kernels => iteration.kernels_ps,
        ModeArg::Span => iteration.span_ps,
    };
    // what no kernel was part of is no time of the program
    let times: Vec<f64> = iterations.iter().filter(|_| has_kernels).map(|iteration| ns(time(iteration))).collect();
    let all: u64 = iterations.iter().map(|iteration| iteration.kernels_ps).sum();
    let rows = kernels.iter().map(|kernel| {
        let totals: Vec<f64> = kernel.total_ps.iter().map(|&ps| ns(ps)).collect();
        let sum: u64 = kernel.total_ps.iter().sum();
        KernelRow {
            name: kernel.name.clone(),
            count: kernel.count,
            median_ns: quantile(&totals, 0.5).unwrap_or_default(),
            mean_ns: totals.iter().sum::<f64>() / totals.len().max(1) as f64,
            share: if all == 0 { 0.0 } else { sum as f64 / all as f64 },
        }
    });
    let mut notes = Vec::new();
    if iterations.iter().any(|iteration| iteration.kernels_ps > iteration.busy_ps) {
        notes.push("kernels ran at the same time, so their sum is more than the time in which they ran".to_owned());
    }
    if measured.inputs.iter().any(|input| matches!(input.made, Made::Fill(Fill::Constant { .. }))) {
        notes.push("integer and boolean inputs are zeros; give others with `--inputs DIR`".to_owned());
    }
    Document {
        schema: 1,
        program: args.program.clone(),
        mode: args.mode,
        timer: timer.name().to_owned(),
        source: timer.source(),
        device: timer.device().identity.clone(),
        iterations: args.iterations,
        warm_up: WARM_UP,
        cache_state: args.cache_state.into(),
        inputs: &measured.inputs,
        inputs_given_anew: program.donates,
        kernels: kernels.iter().map(|kernel| kernel.count).sum(),
        median_ns: quantile(&times, 0.5),
        quartiles_ns: quantile(&times, 0.25).zip(quantile(&times, 0.75)).map(|(low, high)| [low, high]),
        samples: iterations.iter().map(sample).collect(),
        per_kernel: args.per_kernel.then(|| rows.collect()),
        notes,
        findings: &measured.findings,
    }
}

fn sample(iteration: &Iteration) -> Sample {
    Sample {
        kernels_ns: ns(iteration.kernels_ps),
        span_ns: ns(iteration.span_ps),
        busy_ns: ns(iteration.busy_ps),
        gaps_ns: ns(iteration.gaps_ps()),
    }
}

fn write_table(out: &mut dyn Write, document: &Document<'_>) -> std::io::Result<()> {
    let mut grid = Grid::new(&["", ">median", ">quartiles"]);
    let mut row = |name: &str, time: &dyn Fn(&Sample) -> f64| {
        let times: Vec<f64> = document.samples.iter().map(time).collect();
        if let (Some(low), Some(median), Some(high)) =
            (quantile(&times, 0.25), quantile(&times, 0.5), quantile(&times, 0.75))
        {
            grid.row([name.to_owned(), format_ns(median), format!("{} – {}", format_ns(low), format_ns(high))]);
        }
    };
    if document.median_ns.is_some() {
        match document.mode {
            ModeArg::Kernels => row(&format!("sum of {} kernels", document.kernels), &|sample| sample.kernels_ns),
            ModeArg::Span => {
                row("first start to last end", &|sample| sample.span_ns);
                row("  busy", &|sample| sample.busy_ns);
                row("  gaps", &|sample| sample.gaps_ns);
            }
        }
    }
    if grid.is_empty() {
        writeln!(out, "no kernels ran")?
    } else {
        grid.write(out)?
    }
    if let Some(kernels) = document.per_kernel.as_ref().filter(|kernels| !kernels.is_empty()) {
        let mut grid = Grid::new(&["kernel", ">launches", ">median", ">mean", ">share"]);
        for kernel in kernels {
            let share = format!("{:.1}%", kernel.share * 100.0);
            let (median, mean) = (format_ns(kernel.median_ns), format_ns(kernel.mean_ns));
            grid.row([kernel.name.clone(), kernel.count.to_string(), median, mean, share]);
        }
        writeln!(out)?;
        grid.write(out)?;
    }
    let (one, was) = if document.warm_up == 1 { ("iteration", "was") } else { ("iterations", "were") };
    let Document { iterations, device, warm_up, .. } = document;
    writeln!(out)?;
    write_line(out, format_args!("{iterations} iterations on {device}; {warm_up} {one} before them {was} left out"))?;
    let anew = if document.inputs_given_anew { "; given anew before each iteration" } else { "" };
    write_line(out, format_args!("inputs: {}{anew}", inputs(document.inputs)))?;
    for note in &document.notes {
        write_line(out, format_args!("note: {note}"))?;
    }
    for finding in document.findings {
        write_line(out, format_args!("{finding}"))?;
    }
    Ok(())
}

/// Inputs that a line holds; the JSON has them all.
const INPUTS_SHOWN: usize = 8;

fn inputs(inputs: &[MadeInput]) -> String {
    let shown = inputs.iter().take(INPUTS_SHOWN);
    let mut shown: Vec<String> = shown.map(|input| format!("{} {}", input.spec, values(&input.made))).collect();
    match inputs.len().saturating_sub(INPUTS_SHOWN) {
        0 if inputs.is_empty() => return "none".to_owned(),
        0 => {}
        more => shown.push(format!("and {more} more, which `--format json` lists")),
    }
    shown.join(", ")
}

fn values(made: &Made) -> String {
    match made {
        Made::File(path) => format!("from `{}`", file_name(path)),
        Made::Fill(Fill::Normal { scale }) => format!("normal({scale})"),
        Made::Fill(Fill::Uniform { low, high }) => format!("uniform({low}, {high})"),
        Made::Fill(Fill::Constant { .. }) => "zeros".to_owned(),
        Made::Fill(_) => "filled".to_owned(),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
