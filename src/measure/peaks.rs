//! A device's attainable peaks, measured through its own plugin: matrix products, chains of multiply-adds, and streams
//! through memory.
//!
//! This is an attainable roof, as the Empirical Roofline Tool measures it, not a data sheet's: capacity that the
//! plugin's compiler leaves unused is not included.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use serde::Serialize;

use super::error::MeasureError;
use super::input_options::{ArgumentFill, FillValues, InputOptions};
use super::inputs::make_inputs;
use super::program::MeasuredProgram;
use super::run::job;
use crate::array::{ArraySpec, DType};
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{CacheState, TOOL};
use crate::peaks::Peaks;
use crate::printable::printable;
use crate::stats::quantiles;
use crate::timer::{InputArray, Timer, TimerExt};

/// Sides of the matrices, and lengths of the vectors: larger ones follow as long as a run is short.
const SIDES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
const LENGTHS: [u64; 4] = [1 << 18, 1 << 20, 1 << 22, 1 << 24];
/// A run that takes this long fills the device.
const LONG_NS: f64 = 20e6;
/// Number of runs of each program: as many as take about this long, within these bounds.
const SERIES_NS: f64 = 5e8;
const RUNS: (u32, u32) = (5, 20);
/// Runs before the counted ones.
const WARM_UP: u32 = 2;
/// Elements of a stream, 128 MiB of `f32`: more than the caches of all but the largest servers.
const STREAM: u64 = 1 << 25;
/// Rows of the matrix with as many elements.
const STREAM_ROWS: u64 = 1 << 12;
/// Number of independent chains of multiply-adds, which hide the units' latency, and the length of each.
const CHAINS: u64 = 8;
const STEPS: u64 = 16;

/// The resource whose peak a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PeakOf {
    /// The units for matrix products, FLOP/s.
    Matrix,
    /// All other units, FLOP/s.
    Vector,
    /// The memory, bytes/s.
    Memory,
}

impl PeakOf {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Vector => "vector",
            Self::Memory => "memory",
        }
    }

    /// The unit of the amount.
    pub fn unit(self) -> &'static str {
        if self == Self::Memory { "B/s" } else { "FLOP/s" }
    }
}

/// A program's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredPeak {
    /// The resource.
    pub of: PeakOf,
    /// The element type.
    pub dtype: DType,
    /// The program.
    pub program: String,
    /// FLOPs or bytes of a run.
    pub amount: f64,
    /// Amount per second: the median over the runs.
    pub per_second: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
    /// Number of counted runs.
    pub runs: usize,
}

/// A program without a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The program.
    pub program: String,
    /// Why it has none.
    pub reason: String,
}

/// The results for a device.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPeaks {
    /// In the form of a peaks file.
    pub peaks: Peaks,
    /// The figures of the fastest program of each kind and type.
    pub figures: Vec<MeasuredPeak>,
    /// Programs that did not run.
    pub skipped: Vec<Skipped>,
}

/// A program with a known number of FLOPs or bytes.
struct PeakProgram {
    name: String,
    text: String,
    arguments: Vec<ArraySpec>,
    amount: f64,
    /// Whether its arguments are zeros, which are cheap to make.
    is_of_zeros: bool,
}

/// Runs programs of each kind and type, larger ones as long as they are short, and keeps the fastest of each.
///
/// # Errors
/// If the device or the worker fails, the scratch folder cannot be written, or no streaming program runs.
pub fn measure_peaks(timer: &mut dyn Timer, scratch: &Path) -> Result<MeasuredPeaks, MeasureError> {
    let mut measured = Vec::new();
    let mut skipped = Vec::new();
    let floats = [DType::F32, DType::F64];
    let matrix = [DType::F32, DType::F64, DType::Bf16, DType::F16, DType::S8];
    let mut series: Vec<(PeakOf, DType, Vec<PeakProgram>)> = Vec::new();
    series.extend(matrix.map(|dtype| (PeakOf::Matrix, dtype, SIDES.map(|side| product(dtype, side)).into())));
    series.extend(floats.map(|dtype| (PeakOf::Vector, dtype, LENGTHS.map(|length| chains(dtype, length)).into())));
    // each of them may be the fastest, no matter how long it runs
    series.extend(streams().map(|stream| (PeakOf::Memory, DType::F32, vec![stream])));
    for (of, dtype, programs) in series {
        let mut best: Option<MeasuredPeak> = None;
        for program in programs {
            // removed with its inputs before the next one is made
            let folder = tempfile::tempdir_in(scratch)
                .map_err(|source| MeasureError::Scratch { path: scratch.to_owned(), source })?;
            match attained(timer, &program, (of, dtype), folder.path()) {
                Ok(peak) => {
                    let is_long = peak.amount / peak.per_second >= LONG_NS / 1e9;
                    if best.as_ref().is_none_or(|best| best.per_second < peak.per_second) {
                        best = Some(peak);
                    }
                    if is_long {
                        break;
                    }
                }
                Err(error) if is_of_device(&error) => return Err(error),
                Err(error) => {
                    if let MeasureError::Failed(failure) = &error
                        && failure.needs_restart()
                    {
                        timer.restart(&[0])?;
                    }
                    timer.end();
                    let reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                    skipped.push(Skipped { program: program.name, reason: printable(&reason) });
                    break;
                }
            }
        }
        measured.extend(best);
    }
    let memory = measured.iter().filter(|peak| peak.of == PeakOf::Memory);
    let fastest = memory.max_by(|one, other| one.per_second.total_cmp(&other.per_second)).cloned();
    let Some(fastest) = fastest else {
        let why = skipped.last().map_or_else(String::new, |left| format!(": `{}`: {}", left.program, left.reason));
        return Err(Failure::new(FailureKind::Execute, format!("no program streams through the memory{why}")).into());
    };
    measured.retain(|peak| peak.of != PeakOf::Memory);
    measured.push(fastest);
    Ok(MeasuredPeaks { peaks: peaks_of(timer, &measured), figures: measured, skipped })
}

fn peaks_of(timer: &dyn Timer, measured: &[MeasuredPeak]) -> Peaks {
    let of = |of: PeakOf| -> BTreeMap<DType, f64> {
        measured.iter().filter(|peak| peak.of == of).map(|peak| (peak.dtype, peak.per_second)).collect()
    };
    let identity = &timer.info().device.identity;
    let compiler = timer.info().device.environment.compiler();
    let compiler = compiler.map_or_else(String::new, |compiler| format!(", compiled by {compiler}"));
    let first = format!(
        "measured by {TOOL} with `{}` on {identity}{compiler}: attainable, no data sheet's peak",
        timer.info().name
    );
    let figure = |peak: &MeasuredPeak| {
        let MeasuredPeak { of, dtype, program, per_second, low, high, runs, .. } = peak;
        let (of, unit) = (of.name(), of.unit());
        format!("{of} {dtype}: {per_second:.3e} {unit}, quartiles {low:.3e} to {high:.3e}, {runs} runs of {program}")
    };
    let sources = [first].into_iter().chain(measured.iter().map(figure)).map(|line| printable(&line)).collect();
    let bytes_per_second = of(PeakOf::Memory).into_values().fold(0.0, f64::max);
    Peaks::new(format!("measured:{}", printable(&identity.device_kind)), bytes_per_second)
        .kinds(vec![identity.device_kind.clone()])
        .matrix(of(PeakOf::Matrix))
        .vector(of(PeakOf::Vector))
        .sources(sources)
}

/// Whether the next program would fail as well.
fn is_of_device(error: &MeasureError) -> bool {
    match error {
        MeasureError::Failed(failure) => failure.kind == FailureKind::Device,
        MeasureError::Scratch { .. } => true,
        _ => false,
    }
}

/// Runs one program and returns its rate.
fn attained(
    timer: &mut dyn Timer,
    program: &PeakProgram,
    (of, dtype): (PeakOf, DType),
    folder: &Path,
) -> Result<MeasuredPeak, MeasureError> {
    let text = MeasuredProgram::of_text(&program.text);
    let file = text.write(folder, "program")?;
    let inputs = inputs(program, &text, folder)?;
    timer.begin(&job(&file, inputs, CacheState::Warm, folder))?;
    timer.prepare(0)?;
    let trial = timer.run(0, WARM_UP)?;
    let usual_ns = trial.into_iter().min().map_or(1.0, |ns| ns as f64).max(1.0);
    let runs = (SERIES_NS / usual_ns).clamp(f64::from(RUNS.0), f64::from(RUNS.1)) as u32;
    let rates: Vec<f64> = timer.run(0, runs)?.into_iter().map(|ns| program.amount / ns as f64 * 1e9).collect();
    timer.end();
    let [low, median, high] = quantiles(&rates, [0.25, 0.5, 0.75]);
    let times = low.zip(median).zip(high).filter(|(_, high)| high.is_finite());
    let ((low, per_second), high) = times.ok_or_else(|| {
        let message = format!("a run took no time by the clock of `{}`", timer.info().name);
        Failure::new(FailureKind::Execute, message)
    })?;
    let (name, amount) = (program.name.clone(), program.amount);
    Ok(MeasuredPeak { of, dtype, program: name, amount, per_second, low, high, runs: rates.len() })
}

fn inputs(program: &PeakProgram, text: &MeasuredProgram, folder: &Path) -> Result<Vec<InputArray>, MeasureError> {
    if !program.is_of_zeros {
        // zeros would draw less power, and 0.5 keeps chains of multiply-adds within normal numbers
        let values = |spec: &ArraySpec| match spec.dtype.has_fractions() {
            true => FillValues::Uniform { low: 0.25, high: 0.75 },
            false => FillValues::Uniform { low: -4.0, high: 4.0 },
        };
        let fill =
            |(index, spec): (usize, &ArraySpec)| ArgumentFill { argument: index.to_string(), values: values(spec) };
        let fills = program.arguments.iter().enumerate().map(fill).collect();
        return Ok(make_inputs(text, &program.arguments, &InputOptions::default().fills(fills), folder)?.arrays);
    }
    let zeros = |(index, spec): (usize, &ArraySpec)| {
        let path = folder.join(format!("argument-{index}.bin"));
        let bytes = spec.host_bytes().unwrap_or(0);
        match File::create_new(&path).and_then(|file| file.set_len(bytes)) {
            Ok(()) => Ok(InputArray { name: format!("argument-{index}"), spec: spec.clone(), path, donated: false }),
            Err(source) => Err(MeasureError::Scratch { path, source }),
        }
    };
    program.arguments.iter().enumerate().map(zeros).collect()
}

/// The type's name in StableHLO.
fn mlir(dtype: DType) -> String {
    match dtype {
        DType::S8 => "i8".to_owned(),
        DType::S32 => "i32".to_owned(),
        other => other.to_string(),
    }
}

/// A product of square matrices.
fn product(dtype: DType, side: u64) -> PeakProgram {
    let sum = if dtype == DType::S8 { DType::S32 } else { dtype };
    let [one, sum] = [dtype, sum].map(|dtype| format!("tensor<{side}x{side}x{}>", mlir(dtype)));
    let spec = ArraySpec::new(dtype, [side, side]);
    PeakProgram {
        name: format!("a product of two {spec}"),
        text: format!(
            "module @product {{
  func.func public @main(%x: {one}, %y: {one}) -> {sum} {{
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({one}, {one}) -> {sum}
    return %0 : {sum}
  }}
}}
"
        ),
        arguments: vec![spec.clone(), spec],
        amount: 2.0 * (side as f64).powi(3),
        is_of_zeros: false,
    }
}

/// Chains of multiply-adds on each element of a vector, held in registers.
fn chains(dtype: DType, length: u64) -> PeakProgram {
    let (vector, scalar) = (format!("tensor<{length}x{}>", mlir(dtype)), format!("tensor<{}>", mlir(dtype)));
    let mut body = String::new();
    for (name, argument) in [("a", "%p"), ("b", "%q")] {
        body += &format!("    %{name} = stablehlo.broadcast_in_dim {argument}, dims = [] : ({scalar}) -> {vector}\n");
    }
    // different start values, because equal chains would be merged
    body += &format!("    %c0_0 = stablehlo.add %x, %b : {vector}\n");
    for chain in 1..CHAINS {
        body += &format!("    %c{chain}_0 = stablehlo.add %c{}_0, %b : {vector}\n", chain - 1);
    }
    for chain in 0..CHAINS {
        for step in 0..STEPS {
            let next = step + 1;
            body += &format!("    %m{chain}_{next} = stablehlo.multiply %c{chain}_{step}, %a : {vector}\n");
            body += &format!("    %c{chain}_{next} = stablehlo.add %m{chain}_{next}, %b : {vector}\n");
        }
    }
    body += &format!("    %s0 = stablehlo.add %c0_{STEPS}, %c1_{STEPS} : {vector}\n");
    for chain in 2..CHAINS {
        body += &format!("    %s{} = stablehlo.add %s{}, %c{chain}_{STEPS} : {vector}\n", chain - 1, chain - 2);
    }
    let last = CHAINS - 2;
    let spec = ArraySpec::new(dtype, [length]);
    PeakProgram {
        name: format!("{CHAINS} chains of {STEPS} multiply-adds on {spec}"),
        text: format!(
            "module @chains {{\n  func.func public @main(%x: {vector}, %p: {scalar}, %q: {scalar}) -> {vector} {{\n\
             {body}    return %s{last} : {vector}\n  }}\n}}\n"
        ),
        arguments: vec![spec, ArraySpec::new(dtype, Vec::new()), ArraySpec::new(dtype, Vec::new())],
        amount: (CHAINS + 2 * CHAINS * STEPS + CHAINS - 1) as f64 * length as f64,
        is_of_zeros: false,
    }
}

/// Programs that do little but read and write memory.
fn streams() -> [PeakProgram; 3] {
    let element = 4.0;
    let stream = format!("tensor<{STREAM}xf32>");
    let (rows, columns) = (STREAM_ROWS, STREAM / STREAM_ROWS);
    let (row, column) = (format!("tensor<{rows}xf32>"), format!("tensor<{columns}xf32>"));
    let matrix = format!("tensor<{rows}x{columns}xf32>");
    let spec = |dims: &[u64]| ArraySpec::new(DType::F32, dims.to_vec());
    let program = |name: String, body: String, arguments: Vec<ArraySpec>, elements: u64| PeakProgram {
        name,
        text: format!("module @stream {{\n  func.func public @main{body}\n  }}\n}}\n"),
        arguments,
        amount: element * elements as f64,
        is_of_zeros: true,
    };
    [
        program(
            format!("negating {}", spec(&[STREAM])),
            format!("(%x: {stream}) -> {stream} {{\n    %0 = stablehlo.negate %x : {stream}\n    return %0 : {stream}"),
            vec![spec(&[STREAM])],
            2 * STREAM,
        ),
        program(
            format!("adding two {}", spec(&[STREAM])),
            format!(
                "(%x: {stream}, %y: {stream}) -> {stream} {{\n    %0 = stablehlo.add %x, %y : {stream}\
                 \n    return %0 : {stream}"
            ),
            vec![spec(&[STREAM]), spec(&[STREAM])],
            3 * STREAM,
        ),
        program(
            format!("a row times {}", spec(&[rows, columns])),
            format!(
                "(%x: {row}, %y: {matrix}) -> {column} {{\n    %0 = stablehlo.dot_general %x, %y, contracting_dims = \
                 [0] x [0] : ({row}, {matrix}) -> {column}\n    return %0 : {column}"
            ),
            vec![spec(&[rows]), spec(&[rows, columns])],
            STREAM + rows + columns,
        ),
    ]
}
