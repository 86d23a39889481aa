//! `profile compile`: where compilation spends its time.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::analysis::HloFiles;
use crate::analysis::compile::{CompileOptions, CompileReport, compile_ranges, compile_report};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{Format, FormatArg};
use crate::report::{Grid, format_ns, format_part, write_json, write_line};

use super::input::read_any;

/// Phases below this part of the time are folded in the table.
const FOLDED: f64 = 0.001;
/// Compilations listed in the table.
const LISTED: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// List each pass for itself
    #[arg(long)]
    pub by_pass: bool,
    /// List what XLA's autotuner compiles by phase, not as one
    #[arg(long)]
    pub autotuner_detail: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    profiles: Vec<ProfileDocument>,
}

#[derive(Serialize)]
struct ProfileDocument {
    host: String,
    #[serde(flatten)]
    report: CompileReport,
}

/// Prints phases and compilations; none at all is exit code 3.
pub(super) fn compile(args: &CompileArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let options = CompileOptions { by_pass: args.by_pass, autotuner_detail: args.autotuner_detail };
    let mut profiles = Vec::new();
    for capture in read_any(&args.files, &HloFiles::default())? {
        let ranges = compile_ranges(&capture);
        let mut report = compile_report(ranges.as_deref().unwrap_or_default(), options);
        if ranges.is_none() {
            report.notes.push("the capture holds no `report_nvtx_pushpop_trace`".to_owned());
        }
        profiles.push(ProfileDocument { host: capture.host_or_path(), report });
    }
    let found = profiles.iter().any(|profile| !profile.report.compilations.is_empty());
    let document = Document { schema: 1, profiles };
    match args.format.format {
        Format::Json => write_json(out, &document)?,
        Format::Table => write_table(out, &document)?,
    }
    Ok(if found { exit::FINE } else { exit::NOTHING_MATCHED })
}

fn write_table(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    for (number, profile) in document.profiles.iter().enumerate() {
        if document.profiles.len() > 1 {
            if number > 0 {
                writeln!(out)?;
            }
            write_line(out, format_args!("{}", profile.host))?;
        }
        write_report(out, &profile.report)?;
    }
    Ok(())
}

fn write_report(out: &mut dyn Write, report: &CompileReport) -> io::Result<()> {
    if report.compilations.is_empty() {
        writeln!(out, "no compilation was found")?;
    } else {
        write_phases(out, report)?;
        writeln!(out)?;
        write_compilations(out, report)?;
    }
    for note in &report.notes {
        write_line(out, format_args!("note: {note}"))?;
    }
    Ok(())
}

fn write_phases(out: &mut dyn Write, report: &CompileReport) -> io::Result<()> {
    let mut grid = Grid::new(&["phase", ">time", ">share", ">ranges"]);
    let (shown, folded): (Vec<_>, Vec<_>) = report
        .phases
        .iter()
        .partition(|phase| phase.share >= FOLDED || phase.exclusive_ns == report.library_loading_ns);
    for phase in shown {
        let cells =
            [phase.phase.clone(), format_ns(phase.exclusive_ns), format_part(phase.share), phase.ranges.to_string()];
        grid.row(cells);
    }
    if !folded.is_empty() {
        let sum =
            |of: fn(&crate::analysis::compile::PhaseTime) -> f64| folded.iter().map(|phase| of(phase)).sum::<f64>();
        let ranges: u64 = folded.iter().map(|phase| phase.ranges).sum();
        let (time, share) = (sum(|phase| phase.exclusive_ns), sum(|phase| phase.share));
        let name = format!("{} more, each below {}", folded.len(), format_part(FOLDED));
        grid.row([name, format_ns(time), format_part(share), ranges.to_string()]);
    }
    let count = report.compilations.len();
    let name = format!("total of {count} compilation{}", if count == 1 { "" } else { "s" });
    grid.row([name, format_ns(report.total_ns), String::new(), String::new()]);
    grid.write(out)
}

fn write_compilations(out: &mut dyn Write, report: &CompileReport) -> io::Result<()> {
    let mut longest: Vec<_> = report.compilations.iter().collect();
    longest.sort_by(|one, other| other.duration_ns.total_cmp(&one.duration_ns));
    let mut grid = Grid::new(&["module", ">program", ">time", ">parallel", ">workers"]);
    for compilation in longest.iter().take(LISTED) {
        grid.row([
            compilation.module.clone().unwrap_or_else(|| "—".to_owned()),
            compilation.program_id.map_or_else(|| "—".to_owned(), |id| id.to_string()),
            format_ns(compilation.duration_ns),
            if compilation.workers > 0 { format_ns(compilation.parallel_ns) } else { "—".to_owned() },
            compilation.workers.to_string(),
        ]);
    }
    grid.write(out)?;
    if let Some(more) = longest.len().checked_sub(LISTED).filter(|more| *more > 0) {
        writeln!(out, "and {more} shorter")?;
    }
    if report.parallel_ns > 0.0 {
        let (parallel, work) = (format_ns(report.parallel_ns), format_ns(report.worker_ns));
        writeln!(
            out,
            "\nworker threads compiled for {work} within {parallel}; their phases share the latter as they share the former"
        )?;
    }
    if report.elapsed_ns < report.total_ns {
        writeln!(out, "compilations overlap: {} passed", format_ns(report.elapsed_ns))?;
    }
    Ok(())
}
