//! Where compilation spends its time.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::compile::{CompileReport, PhaseTime};
use crate::counted::counted;

use super::document::versioned;
use super::grid::{cells, dash};
use super::{Document, Grid, format_ns, format_part, line, write_notes};

/// Phases below this share of the time are summarised in the table.
const FOLDED: f64 = 0.001;
/// Compilations listed in the table.
const LISTED: usize = 10;

/// Each process's report.
#[derive(Serialize)]
pub struct CompileProfiles {
    /// One per process.
    pub profiles: Vec<CompileProfile>,
}

impl CompileProfiles {
    /// Joins the reports of these processes.
    pub fn new(profiles: Vec<CompileProfile>) -> Self {
        Self { profiles }
    }
}

/// The compilations of one process.
#[derive(Serialize)]
pub struct CompileProfile {
    /// The host or file.
    pub host: String,
    /// What it compiled.
    #[serde(flatten)]
    pub report: CompileReport,
}

impl CompileProfile {
    /// Joins a host with the compilations of its process.
    pub fn new(host: impl Into<String>, report: CompileReport) -> Self {
        Self { host: host.into(), report }
    }
}

impl Document for CompileProfiles {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for (number, profile) in self.profiles.iter().enumerate() {
            if self.profiles.len() > 1 {
                if number > 0 {
                    writeln!(out)?;
                }
                line!(out, "{}", profile.host)?;
            }
            write_report(out, &profile.report)?;
        }
        Ok(())
    }
}

fn write_report(out: &mut dyn Write, report: &CompileReport) -> io::Result<()> {
    if report.compilations.is_empty() {
        writeln!(out, "no compilation was found")?;
    } else {
        write_phases(out, report)?;
        writeln!(out)?;
        write_compilations(out, report)?;
    }
    write_notes(out, &report.notes)
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
        let sum = |of: fn(&PhaseTime) -> f64| folded.iter().map(|phase| of(phase)).sum::<f64>();
        let ranges: u64 = folded.iter().map(|phase| phase.ranges).sum();
        let (time, share) = (sum(|phase| phase.exclusive_ns), sum(|phase| phase.share));
        let name = format!("{} more, each below {}", folded.len(), format_part(FOLDED));
        grid.row(cells![name, format_ns(time), format_part(share), ranges]);
    }
    let name = format!("total of {}", counted(report.compilations.len(), "compilation"));
    grid.row(cells![name, format_ns(report.total_ns), String::new(), String::new()]);
    grid.write(out)
}

fn write_compilations(out: &mut dyn Write, report: &CompileReport) -> io::Result<()> {
    let mut longest: Vec<_> = report.compilations.iter().collect();
    longest.sort_by(|one, other| other.duration_ns.total_cmp(&one.duration_ns));
    let mut grid = Grid::new(&["module", ">program", ">time", ">parallel", ">workers"]);
    for compilation in longest.iter().take(LISTED) {
        grid.row(cells![
            dash(compilation.module.clone(), |name| name),
            dash(compilation.program_id, |id| id.to_string()),
            format_ns(compilation.duration_ns),
            if compilation.workers > 0 { format_ns(compilation.parallel_ns) } else { "—".to_owned() },
            compilation.workers
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
            "\nworker threads compiled for {work} within {parallel}; their phases share the latter in proportion to \
             the former"
        )?;
    }
    if report.elapsed_ns < report.total_ns {
        writeln!(out, "compilations overlap: {} passed", format_ns(report.elapsed_ns))?;
    }
    Ok(())
}
