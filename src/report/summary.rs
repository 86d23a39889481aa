//! Where the time of a run went.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::{HostWork, KernelShare, KnownKernelShare, MeanStd, OperationSummary, Part, Summary};

use super::grid::{cells, dash, write_section};
use super::lines::heading;
use super::memory::write_memory;
use super::naming::{named, program, short};
use super::roofline::{WORK_COLUMNS, work_cells, write_roofline};
use super::scan::parameters_of;
use super::{Document, Grid, Top, format_ns, format_part, write_lines, write_notes};

/// Modules below this share of the time are summarised in the table.
const FOLDED: f64 = 0.01;
/// Operations below this share of the time get no line about their spread.
const WORTH_A_LINE: f64 = 0.001;

impl Document for Top<Summary> {
    fn into_json(mut self) -> impl Serialize {
        self.of.cut(self.most.unwrap_or(usize::MAX));
        self.of
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let (summary, top) = (&self.of, self.most.unwrap_or(10));

        if summary.modules.is_empty() {
            writeln!(out, "no module was executed")?;
        } else {
            write_devices(out, summary)?;
            write_modules(out, summary)?;
            write_operations(out, summary, top)?;
            for (what, parts) in [
                ("by opcode", &summary.opcodes),
                ("by source line", &summary.sources),
                ("by op_name", &summary.op_names),
            ] {
                write_parts(out, what, parts, top)?;
            }
            write_labels(out, summary)?;
            write_known_kernels(out, summary)?;
            write_roofline(out, summary, top)?;
            write_memory(out, summary, top)?;
            write_spread(out, summary, top)?;
        }
        write_kernels(out, &summary.kernels, top)?;
        write_host_work(out, "transfers", &summary.transfers, top)?;
        write_host_work(out, "compilations", &summary.compilations, top)?;
        writeln!(out)?;
        let skipped = [
            (summary.skipped.warm_up, "first executions of a module on a device (`--with-warm-up` counts them)"),
            (summary.skipped.autotuner, "executions of XLA's autotuner"),
            (summary.skipped.minor, "executions of minor modules (`--without-minor`)"),
        ];
        for (time, what) in skipped.iter().filter(|(time, _)| time.executions > 0) {
            writeln!(out, "left out: {} {what}, {}", time.executions, format_ns(time.span_ns))?;
        }
        write_notes(out, &summary.notes)?;
        write_lines(out, &summary.findings)
    }
}

/// Returns a mean and its deviation, if there is one.
pub(super) fn mean_std(time: MeanStd) -> [String; 2] {
    let std = time.std.map_or_else(String::new, |std| format!("± {}", format_ns(std)));
    [format_ns(time.mean), std]
}

/// Returns a time and its share of another.
pub(super) fn part(of: f64, all: f64) -> String {
    if all > 0.0 { format!("{} ({})", format_ns(of), format_part(of / all)) } else { format_ns(of) }
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
        let [operations, modules, wall] = [device.operations_ns, device.modules_ns, device.wall_ns].map(format_ns);
        let inside = part(device.idle_inside_ns, device.modules_ns);
        let between = part(device.idle_between_ns, device.wall_ns);
        let overlap = dash((device.overlap_ns > 0.0).then_some(device.overlap_ns), format_ns);
        grid.row(cells![device.name(), device.executions, operations, modules, wall, inside, between, overlap]);
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
        let [active, active_std] = mean_std(module.active_ns);
        let [span, span_std] = mean_std(module.span_ns);
        let operations = match module.operations.std {
            Some(std) if std > 0.0 => format!("{:.0} ± {std:.0}", module.operations.mean),
            _ => format!("{:.0}", module.operations.mean),
        };
        let (share, total) = (format_part(module.share), format_ns(module.total_ns));
        let name = short(&program(&module.module, module.program_id));
        let (runs, devices) = (module.executions, module.devices);
        grid.row(cells![share, total, runs, devices, operations, active, active_std, span, span_std, name]);
    }
    grid.write(out)?;
    if !folded.is_empty() {
        let (share, total): (f64, f64) =
            folded.iter().fold((0.0, 0.0), |sum, module| (sum.0 + module.share, sum.1 + module.total_ns));
        writeln!(out, "and {} below 1 % each: {}, {}", folded.len(), format_part(share), format_ns(total))?;
    }
    Ok(())
}

/// Says whether overlapping operations made this one's part smaller than its own self times, by more than rounding.
fn shares_its_time(operation: &OperationSummary) -> bool {
    operation.time_ns < 0.999 * operation.self_time_ns.mean * operation.executions as f64
}

fn write_operations(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    let headings = [">share", ">time", ">runs each", ">in an execution", "", "opcode", "operation", "source"];
    let rows = summary.operations.iter().map(|operation| {
        let [own, std] = mean_std(operation.self_time_ns);
        let (share, time, runs) = (format_part(operation.share), format_ns(operation.time_ns), runs_each(operation));
        let (opcode, source) = (short(&operation.opcode), short(operation.source.as_deref().unwrap_or("")));
        cells![share, time, runs, own, std, opcode, named(operation, summary.modules.len() > 1), source]
    });
    write_section(out, "operations", &headings, rows, top)?;
    let repeated = summary.operations.iter().filter(|operation| operation.count > operation.executions).count();
    if repeated > 0 {
        writeln!(out, "{repeated} of {} ran more than once in an execution", summary.operations.len())?;
    }
    if summary.operations.iter().any(shares_its_time) {
        writeln!(out, "`time` divides what overlapping operations cover among them; `in an execution` does not")?;
    }
    Ok(())
}

fn runs_each(operation: &OperationSummary) -> String {
    let runs = operation.count as f64 / operation.executions.max(1) as f64;
    if runs.fract() == 0.0 { format!("{runs:.0}") } else { format!("{runs:.1}") }
}

fn write_parts(out: &mut dyn Write, what: &str, parts: &[Part], top: usize) -> io::Result<()> {
    let rows = parts.iter().map(|part| {
        let operations = if part.operations > 0 { part.operations.to_string() } else { String::new() };
        cells![format_part(part.share), format_ns(part.time_ns), operations, short(&part.name)]
    });
    write_section(out, what, &[">share", ">time", ">operations", "name"], rows, top)
}

fn write_labels(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let headings = [&[">share", ">time", ">operations", "evidence"][..], &WORK_COLUMNS, &["label"]].concat();
    let rows = summary.labels.iter().map(|label| {
        let first = cells![format_part(label.share), format_ns(label.time_ns), label.operations, label.evidence];
        first.into_iter().chain(work_cells(label.work.as_ref())).chain([short(&label.label.to_string())])
    });
    write_section(out, "by label", &headings, rows, usize::MAX)
}

fn write_known_kernels(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let headings = [">share", ">time", ">operations", "operation", "project", "parameters"];
    let rows = summary.known_kernels.iter().map(|KnownKernelShare { kernel, operations, time_ns, share, .. }| {
        let first = cells![format_part(*share), format_ns(*time_ns), operations];
        first.into_iter().chain(cells![kernel.operation, kernel.project, parameters_of(kernel)])
    });
    write_section(out, "by kernel", &headings, rows, usize::MAX)
}

/// Writes the compute operations whose time differs most from execution to execution.
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
    spread.sort_by(|one, other| other.0.total_cmp(&one.0));
    let what: [&str; 2] = if of_runs { [">of a run", ">runs"] } else { [">in an execution", ">executions"] };
    let headings = [">spread", what[0], what[1], "opcode", "operation"];
    let rows = spread.iter().map(|(spread, operation)| {
        let (time, times) = operation.varying_ns();
        let (opcode, name) = (short(&operation.opcode), named(operation, summary.modules.len() > 1));
        cells![format_part(*spread), format_ns(time.mean), times, opcode, name]
    });
    write_section(out, "spread of compute operations, deviation over mean", &headings, rows, top.div_ceil(2))
}

fn write_kernels(out: &mut dyn Write, kernels: &[KernelShare], top: usize) -> io::Result<()> {
    let rows = kernels.iter().map(|kernel| {
        let kind = if kernel.communication { "communication" } else { "" };
        cells![
            format_part(kernel.share),
            format_ns(kernel.time_ns),
            kernel.count,
            short(&kernel.name),
            kind,
            kernel.device()
        ]
    });
    write_section(out, "kernels in no program", &[">share", ">time", ">count", "name", "", "device"], rows, top)
}

fn write_host_work(out: &mut dyn Write, what: &str, work: &[HostWork], top: usize) -> io::Result<()> {
    let rows = work
        .iter()
        .map(|one| cells![format_ns(one.time_ns), one.count, one.during_execution, short(&one.name), one.host]);
    write_section(out, what, &[">time", ">count", ">while programs ran", "name", "host"], rows, top)
}
