//! The times of one program's kernels.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::array::Fill;
use crate::device::DeviceIdentity;
use crate::measure::{InputSource, MadeInput, MeasureMode, MeasureOptions, Measured, MeasuredProgram, WARM_UP};
use crate::measured_by::{CacheState, LaunchMode, Source};
use crate::profile::{Finding, Iteration, Measurement};
use crate::stats::quantile;
use crate::timer::Timer;

use super::grid::cells;
use super::{Document, Grid, format_ns, line, write_lines, write_notes};

/// A program's times with how they were measured.
#[derive(Serialize)]
pub struct MeasuredDocument<'a> {
    schema: u32,
    program: PathBuf,
    mode: MeasureMode,
    timer: String,
    source: Source,
    device: DeviceIdentity,
    iterations: u32,
    warm_up: u32,
    cache_state: CacheState,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch: Option<LaunchMode>,
    inputs: &'a [MadeInput],
    inputs_given_anew: bool,
    kernels: u64,
    median_ns: Option<f64>,
    quartiles_ns: Option<[f64; 2]>,
    samples: Vec<IterationSample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_kernel: Option<Vec<KernelRow>>,
    notes: Vec<String>,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct IterationSample {
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

/// Converts picoseconds, exactly below 2^53 ps, two and a half hours.
fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

impl<'a> MeasuredDocument<'a> {
    /// For the program at a path, with the time of each kernel if requested.
    pub fn new(
        path: &Path,
        (mode, per_kernel): (MeasureMode, bool),
        program: &MeasuredProgram,
        timer: &dyn Timer,
        options: &MeasureOptions,
        measured: &'a Measured,
    ) -> Self {
        let Measurement { iterations, kernels } = &measured.measurement;
        let has_kernels = !kernels.is_empty();
        let time = |iteration: &Iteration| match mode {
            MeasureMode::Kernels => iteration.kernels_ps,
            MeasureMode::Span => iteration.span_ps,
        };
        // a time without kernels is not a time of the program
        let times: Vec<f64> = iterations.iter().filter(|_| has_kernels).map(|iteration| ns(time(iteration))).collect();
        Self {
            schema: 1,
            program: path.to_owned(),
            mode,
            timer: timer.info().name.clone(),
            source: timer.info().source.clone(),
            device: timer.info().device.identity.clone(),
            iterations: options.iterations,
            warm_up: WARM_UP,
            cache_state: options.cache_state.clone(),
            launch: timer.info().measured_by(&options.cache_state).launch,
            inputs: &measured.inputs,
            inputs_given_anew: program.donates,
            kernels: kernels.iter().map(|kernel| kernel.count).sum(),
            median_ns: quantile(&times, 0.5),
            quartiles_ns: quantile(&times, 0.25).zip(quantile(&times, 0.75)).map(|(low, high)| [low, high]),
            samples: iterations.iter().map(sample).collect(),
            per_kernel: per_kernel.then(|| kernel_rows(&measured.measurement)),
            notes: notes(measured),
            findings: &measured.findings,
        }
    }
}

fn kernel_rows(Measurement { iterations, kernels }: &Measurement) -> Vec<KernelRow> {
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
    rows.collect()
}

fn notes(measured: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    if measured.measurement.iterations.iter().any(|iteration| iteration.kernels_ps > iteration.busy_ps) {
        notes.push("kernels ran at the same time, so their sum is more than the time in which they ran".to_owned());
    }
    let is_zero_index = |input: &MadeInput| {
        matches!(input.made, InputSource::Fill(Fill::Constant { value: 0.0 })) && !input.spec.dtype.has_fractions()
    };
    if measured.inputs.iter().any(is_zero_index) {
        notes.push("integer and boolean inputs are zeros; set others with `--fill` or `--inputs DIR`".to_owned());
    }
    notes
}

fn sample(iteration: &Iteration) -> IterationSample {
    IterationSample {
        kernels_ns: ns(iteration.kernels_ps),
        span_ns: ns(iteration.span_ps),
        busy_ns: ns(iteration.busy_ps),
        gaps_ns: ns(iteration.gaps_ps()),
    }
}

impl Document for MeasuredDocument<'_> {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["", ">median", ">quartiles"]);
        let mut row = |name: &str, time: &dyn Fn(&IterationSample) -> f64| {
            let times: Vec<f64> = self.samples.iter().map(time).collect();
            if let (Some(low), Some(median), Some(high)) =
                (quantile(&times, 0.25), quantile(&times, 0.5), quantile(&times, 0.75))
            {
                grid.row(cells![name, format_ns(median), format!("{} – {}", format_ns(low), format_ns(high))]);
            }
        };
        if self.median_ns.is_some() {
            match self.mode {
                MeasureMode::Kernels => row(&format!("sum of {} kernels", self.kernels), &|sample| sample.kernels_ns),
                MeasureMode::Span => {
                    row("first start to last end", &|sample| sample.span_ns);
                    row("  busy", &|sample| sample.busy_ns);
                    row("  gaps", &|sample| sample.gaps_ns);
                }
            }
        }
        grid.write_or(out, "no kernels ran")?;
        if let Some(kernels) = self.per_kernel.as_ref().filter(|kernels| !kernels.is_empty()) {
            let mut grid = Grid::new(&["kernel", ">launches", ">median", ">mean", ">share"]);
            for kernel in kernels {
                let share = format!("{:.1}%", kernel.share * 100.0);
                let (median, mean) = (format_ns(kernel.median_ns), format_ns(kernel.mean_ns));
                grid.row(cells![kernel.name, kernel.count, median, mean, share]);
            }
            writeln!(out)?;
            grid.write(out)?;
        }
        let (one, was) = if self.warm_up == 1 { ("iteration", "was") } else { ("iterations", "were") };
        let Self { iterations, device, warm_up, launch, .. } = &self;
        let launch = launch.as_ref().map_or_else(String::new, |launch| format!(", launched {}", launch.to_words()));
        writeln!(out)?;
        line!(out, "{iterations} iterations on {device}{launch}; {warm_up} {one} before them {was} left out")?;
        let anew = if self.inputs_given_anew { "; supplied again before each iteration" } else { "" };
        line!(out, "inputs: {}{anew}", inputs(self.inputs))?;
        write_notes(out, &self.notes)?;
        write_lines(out, self.findings)
    }
}

/// Maximum number of inputs in a line; the JSON has them all.
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

fn values(made: &InputSource) -> String {
    match made {
        InputSource::File(path) => format!("from `{}`", file_name(path)),
        InputSource::Fill(Fill::Normal { scale }) => format!("normal({scale})"),
        InputSource::Fill(Fill::Uniform { low, high }) => format!("uniform({low}, {high})"),
        InputSource::Fill(Fill::Constant { value: 0.0 }) => "zeros".to_owned(),
        InputSource::Fill(Fill::Constant { value }) => format!("constant({value})"),
        InputSource::Fill(Fill::IntegerRange { low, high }) => format!("integers({low}..={high})"),
        InputSource::Fill(_) => "filled".to_owned(),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
