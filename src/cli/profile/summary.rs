//! `profile summary`: where the time of a run went.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::{
    Counting, HloFiles, HostWork, MeanStd, OperationSummary, Part, Summary, SummaryOptions, summarize,
};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{Format, FormatArg, LabelArgs};
use crate::cli::scan::user_labels;
use crate::report::{Grid, format_ns, format_part, write_json, write_line, write_spread_plot};

use super::input::read_any;
use super::picture::write_picture;

/// Modules below this part of the time are folded in the table.
const FOLDED: f64 = 0.01;
/// Longest name in the table.
const MAX_NAME: usize = 72;
/// Operations of less than this part of the time are not worth a line about their spread.
const WORTH_A_LINE: f64 = 0.001;

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub modules: ModulesArgs,
    #[command(flatten)]
    pub labels: LabelArgs,
    /// Write a plot of each compute operation's deviation over its mean against its mean (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Lines of each list [default: 10 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// What counts, and where the HLO is that a capture lacks.
#[derive(Debug, Clone, Args)]
pub(crate) struct CountedArgs {
    /// HloProto or HloModuleProto of what ran, or a folder that XLA dumped them to, where the capture holds none; may be
    /// given again
    #[arg(long, value_name = "FILE")]
    pub hlo: Vec<PathBuf>,
    /// Count the first execution of each module on each device too
    #[arg(long)]
    pub with_warm_up: bool,
}

/// What counts where all modules are added up.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModulesArgs {
    #[command(flatten)]
    pub counted: CountedArgs,
    /// Leave out the modules that together take no more than this part of all modules' time, the shortest first [without a
    /// value: 0.01, as nsys-jax's notebook does]
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "0.01")]
    #[arg(value_parser = crate::cli::options::part)]
    pub without_minor: Option<f64>,
}

impl ModulesArgs {
    /// Which executions count.
    pub(super) fn counting(&self) -> Counting {
        Counting { with_warm_up: self.counted.with_warm_up, minor: self.without_minor.unwrap_or(0.0) }
    }
}

pub(super) fn summary(args: &SummaryArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let user = user_labels(&args.labels)?;
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    let captures = read_any(&args.files, &files)?;
    let options = SummaryOptions { counting: args.modules.counting(), labels: user.as_ref() };
    let mut summary = summarize(&captures, &files, options);
    if let Some(path) = &args.plot {
        plot(path, &summary)?;
    }
    match args.format.format {
        Format::Json => {
            summary.cut(args.top.unwrap_or(usize::MAX));
            write_json(out, &summary)?;
        }
        Format::Table => write_table(out, &summary, args.top.unwrap_or(10))?,
    }
    Ok(if summary.modules.is_empty() { exit::NOTHING_MATCHED } else { exit::FINE })
}

fn plot(path: &Path, summary: &Summary) -> Result<(), Fault> {
    let mut svg = Vec::new();
    if !write_spread_plot(&mut svg, summary)? {
        let message =
            format!("nothing to plot into `{}`: no compute operation ran in two executions that count", path.display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    write_picture(path, &svg)
}

/// A name that may be long: its ends say most.
fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name.to_owned();
    }
    let (head, tail) = (MAX_NAME / 3, MAX_NAME - 1 - MAX_NAME / 3);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(length - tail)).collect()
}

fn mean_std(time: MeanStd) -> [String; 2] {
    let std = time.std.map_or_else(String::new, |std| format!("± {}", format_ns(std)));
    [format_ns(time.mean), std]
}

fn part(of: f64, all: f64) -> String {
    if all > 0.0 { format!("{} ({})", format_ns(of), format_part(of / all)) } else { format_ns(of) }
}

fn heading(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n{text}")
}

fn write_table(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    if summary.modules.is_empty() {
        writeln!(out, "no module was executed")?;
    } else {
        write_devices(out, summary)?;
        write_modules(out, summary)?;
        write_operations(out, summary, top)?;
        for (what, parts) in
            [("by opcode", &summary.opcodes), ("by source line", &summary.sources), ("by op_name", &summary.op_names)]
        {
            write_parts(out, what, parts, top)?;
        }
        write_labels(out, summary)?;
        write_spread(out, summary, top)?;
    }
    write_host_work(out, "transfers", &summary.transfers, top)?;
    write_host_work(out, "compilations", &summary.compilations, top)?;
    writeln!(out)?;
    let left_out = [
        (summary.left_out.warm_up, "first executions of a module on a device (`--with-warm-up` counts them)"),
        (summary.left_out.autotuner, "executions of XLA's autotuner"),
        (summary.left_out.minor, "executions of minor modules (`--without-minor`)"),
    ];
    for (time, what) in left_out.iter().filter(|(time, _)| time.executions > 0) {
        writeln!(out, "left out: {} {what}, {}", time.executions, format_ns(time.span_ns))?;
    }
    for note in &summary.notes {
        write_line(out, format_args!("note: {note}"))?;
    }
    for finding in &summary.findings {
        write_line(out, format_args!("{finding}"))?;
    }
    Ok(())
}

fn write_devices(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let mut grid = Grid::new(&[
        "device",
        ">executions",
        ">1. operations",
        ">2. modules",
        ">3. wall",
        ">idle inside",
        ">idle between",
        ">overlap",
    ]);
    for device in &summary.devices {
        grid.row([
            device.name(),
            device.executions.to_string(),
            format_ns(device.operations_ns),
            format_ns(device.modules_ns),
            format_ns(device.wall_ns),
            part(device.idle_inside_ns, device.modules_ns),
            part(device.idle_between_ns, device.wall_ns),
            if device.overlap_ns > 0.0 { format_ns(device.overlap_ns) } else { "—".to_owned() },
        ]);
    }
    grid.write(out)?;
    writeln!(out, "2 = 1 + idle inside; 3 = 2 + idle between − overlap; shares below are parts of 2")
}

fn write_modules(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    heading(out, "modules")?;
    let mut grid = Grid::new(&[
        ">share",
        ">total",
        ">executions",
        ">devices",
        ">operations",
        ">active",
        "",
        ">span",
        "",
        "module",
    ]);
    let (shown, folded): (Vec<_>, Vec<_>) = summary.modules.iter().partition(|module| module.share >= FOLDED);
    for module in shown {
        let id = module.program_id.map_or_else(String::new, |id| format!("({id})"));
        let [active, active_std] = mean_std(module.active_ns);
        let [span, span_std] = mean_std(module.span_ns);
        let operations = match module.operations.std {
            Some(std) if std > 0.0 => format!("{:.0} ± {std:.0}", module.operations.mean),
            _ => format!("{:.0}", module.operations.mean),
        };
        grid.row([
            format_part(module.share),
            format_ns(module.total_ns),
            module.executions.to_string(),
            module.devices.to_string(),
            operations,
            active,
            active_std,
            span,
            span_std,
            short(&format!("{}{id}", module.module)),
        ]);
    }
    grid.write(out)?;
    if !folded.is_empty() {
        let (share, total): (f64, f64) =
            folded.iter().fold((0.0, 0.0), |sum, module| (sum.0 + module.share, sum.1 + module.total_ns));
        writeln!(out, "and {} below 1 % each: {}, {}", folded.len(), format_part(share), format_ns(total))?;
    }
    Ok(())
}

fn more(out: &mut dyn Write, shown: usize, of: usize) -> io::Result<()> {
    if of > shown { writeln!(out, "and {} more", of - shown) } else { Ok(()) }
}

fn write_operations(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    heading(out, "operations")?;
    let mut grid =
        Grid::new(&[">share", ">time", ">runs each", ">in an execution", "", "opcode", "operation", "source"]);
    let several = summary.modules.len() > 1;
    for operation in summary.operations.iter().take(top) {
        let [own, std] = mean_std(operation.own_ns);
        grid.row([
            format_part(operation.share),
            format_ns(operation.time_ns),
            runs_each(operation),
            own,
            std,
            short(&operation.opcode),
            named(operation, several),
            short(operation.source.as_deref().unwrap_or("")),
        ]);
    }
    grid.write(out)?;
    more(out, top, summary.operations.len())?;
    let repeated = summary.operations.iter().filter(|operation| operation.count > operation.executions).count();
    if repeated > 0 {
        writeln!(out, "{repeated} of {} ran more than once in an execution", summary.operations.len())?;
    }
    Ok(())
}

/// The operation; with its module where there are several.
fn named(operation: &OperationSummary, several: bool) -> String {
    let id = operation.program_id.map_or_else(String::new, |id| format!("({id})"));
    let of = if several { format!(" of {}{id}", operation.module) } else { String::new() };
    short(&format!("{}{of}", operation.operation))
}

fn runs_each(operation: &OperationSummary) -> String {
    let runs = operation.count as f64 / operation.executions.max(1) as f64;
    if runs.fract() == 0.0 { format!("{runs:.0}") } else { format!("{runs:.1}") }
}

fn write_parts(out: &mut dyn Write, what: &str, parts: &[Part], top: usize) -> io::Result<()> {
    heading(out, what)?;
    let mut grid = Grid::new(&[">share", ">time", ">operations", "name"]);
    for part in parts.iter().take(top) {
        grid.row([
            format_part(part.share),
            format_ns(part.time_ns),
            if part.operations > 0 { part.operations.to_string() } else { String::new() },
            short(&part.name),
        ]);
    }
    grid.write(out)?;
    more(out, top, parts.len())
}

fn write_labels(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    if summary.labels.is_empty() {
        return Ok(());
    }
    heading(out, "by label")?;
    let mut grid = Grid::new(&[">share", ">time", ">operations", "evidence", "label"]);
    for label in &summary.labels {
        grid.row([
            format_part(label.share),
            format_ns(label.time_ns),
            label.operations.to_string(),
            label.evidence.to_string(),
            short(&label.label.to_string()),
        ]);
    }
    grid.write(out)
}

/// The compute operations whose time differs most from execution to execution.
fn write_spread(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    let of_runs = summary.operations.iter().any(|operation| operation.run_ns.is_some());
    let mut spread: Vec<(f64, &OperationSummary)> = summary
        .operations
        .iter()
        .filter(|operation| !operation.communication && operation.share >= WORTH_A_LINE)
        .filter_map(|operation| {
            let time = operation.varying_ns().0;
            Some((time.std? / time.mean, operation))
        })
        .filter(|(spread, _)| spread.is_finite())
        .collect();
    if spread.is_empty() {
        return Ok(());
    }
    spread.sort_by(|one, other| other.0.total_cmp(&one.0));
    heading(out, "spread of compute operations, deviation over mean")?;
    let what: [&str; 2] = if of_runs { [">of a run", ">runs"] } else { [">in an execution", ">executions"] };
    let mut grid = Grid::new(&[">spread", what[0], what[1], "opcode", "operation"]);
    for (spread, operation) in spread.iter().take(top.div_ceil(2)) {
        let (time, times) = operation.varying_ns();
        grid.row([
            format_part(*spread),
            format_ns(time.mean),
            times.to_string(),
            short(&operation.opcode),
            named(operation, summary.modules.len() > 1),
        ]);
    }
    grid.write(out)
}

fn write_host_work(out: &mut dyn Write, what: &str, work: &[HostWork], top: usize) -> io::Result<()> {
    if work.is_empty() {
        return Ok(());
    }
    heading(out, what)?;
    let mut grid = Grid::new(&[">time", ">count", ">while programs ran", "name", "host"]);
    for one in work.iter().take(top) {
        grid.row([
            format_ns(one.time_ns),
            one.count.to_string(),
            one.during_execution.to_string(),
            short(&one.name),
            one.host.clone(),
        ]);
    }
    grid.write(out)?;
    more(out, top, work.len())
}
