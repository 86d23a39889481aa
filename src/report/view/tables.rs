//! The summary as tables: devices with their totals, modules, operations, labels.

use std::io::{self, Write};

use crate::analysis::{MeanStd, Part, Summary};
use crate::report::html::escape::Text;
use crate::report::naming::program;
use crate::report::roofline::{WORK_COLUMNS, peaks_line, work_cells, worst};
use crate::report::summary::{self, part};
use crate::report::{format_ns, format_part};

/// Rows of a table; the whole is `profile summary --format json`'s.
const MOST: usize = 25;

/// A table: its name, its columns (`>`: numbers, to the right), its rows, and how many rows there are in all.
fn write_table(
    out: &mut dyn Write,
    name: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    all: usize,
) -> io::Result<()> {
    if all == 0 {
        return Ok(());
    }
    let class = |column: usize| match columns.get(column) {
        Some(heading) if heading.starts_with('>') => " class=\"number\"",
        _ => "",
    };
    write!(
        out,
        "<h3>{name}</h3>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table><caption class=\"unseen\">{name}</caption><thead><tr>"
    )?;
    for (number, heading) in columns.iter().enumerate() {
        write!(out, "<th scope=\"col\"{}>{}</th>", class(number), heading.trim_start_matches('>'))?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for row in rows.take(MOST) {
        write!(out, "<tr>")?;
        for (number, cell) in row.iter().enumerate() {
            write!(out, "<td{}>{}</td>", class(number), Text(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if all > MOST {
        writeln!(out, "<p class=\"fine\">and {} more</p>", all - MOST)?;
    }
    Ok(())
}

fn mean_std(time: MeanStd) -> String {
    summary::mean_std(time).join(" ").trim_end().to_owned()
}

/// Writes all tables, and what to know of them.
pub(super) fn write_tables(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    if summary.modules.is_empty() {
        writeln!(out, "<p class=\"fine\">No module was executed.</p>")?;
    }
    let devices = summary.devices.iter().map(|device| {
        vec![
            device.name(),
            device.executions.to_string(),
            format_ns(device.operations_ns),
            format_ns(device.modules_ns),
            format_ns(device.wall_ns),
            part(device.idle_inside_ns, device.modules_ns),
            part(device.idle_between_ns, device.wall_ns),
        ]
    });
    let columns = [
        "device",
        ">executions",
        ">1. operations",
        ">2. modules",
        ">3. wall",
        ">idle inside (of 2)",
        ">idle between (of 3)",
    ];
    write_table(out, "Devices", &columns, devices, summary.devices.len())?;
    let modules = summary.modules.iter().map(|module| {
        vec![
            program(&module.module, module.program_id),
            format_part(module.share),
            format_ns(module.total_ns),
            module.executions.to_string(),
            mean_std(module.active_ns),
            mean_std(module.span_ns),
        ]
    });
    let columns = ["module", ">share of 2", ">total", ">executions", ">active", ">span"];
    write_table(out, "Modules", &columns, modules, summary.modules.len())?;
    let operations = summary.operations.iter().map(|operation| {
        vec![
            operation.operation.clone(),
            format_part(operation.share),
            format_ns(operation.time_ns),
            mean_std(operation.own_ns),
            operation.count.to_string(),
            operation.opcode.clone(),
            program(&operation.module, operation.program_id),
            operation.source.clone().unwrap_or_default(),
        ]
    });
    let columns = ["operation", ">share of 2", ">time", ">in an execution", ">events", "opcode", "module", "source"];
    write_table(out, "Top operations", &columns, operations, summary.operations.len())?;
    let labels = summary.labels.iter().map(|label| {
        let mut row = vec![
            label.label.to_string(),
            format_part(label.share),
            format_ns(label.time_ns),
            label.operations.to_string(),
            label.evidence.to_string(),
        ];
        row.extend(work_cells(label.work.as_ref()));
        row
    });
    let columns = [&["label", ">share of 2", ">time", ">operations", "evidence"][..], &WORK_COLUMNS].concat();
    write_table(out, "Labels", &columns, labels, summary.labels.len())?;
    write_roofline(out, summary)?;
    for (name, parts) in [("By opcode", &summary.opcodes), ("By source line", &summary.sources)] {
        write_parts(out, name, parts)?;
    }
    write_notes(out, summary)
}

/// What loses most time below the roof.
fn write_roofline(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let worst = worst(summary);
    let rows = worst.iter().map(|operation| {
        let mut row = vec![operation.operation.clone(), format_part(operation.share)];
        row.extend(work_cells(operation.work.as_ref()));
        row.push(program(&operation.module, operation.program_id));
        row
    });
    let columns = [&["operation", ">share of 2"][..], &WORK_COLUMNS, &["module"]].concat();
    write_table(out, "Roofline", &columns, rows, worst.len())?;
    if worst.is_empty() { Ok(()) } else { writeln!(out, "<p class=\"fine\">{}</p>", Text(&peaks_line(summary))) }
}

fn write_parts(out: &mut dyn Write, name: &str, parts: &[Part]) -> io::Result<()> {
    let with_time = parts.iter().filter(|part| part.time_ns > 0.0);
    let rows = with_time.clone().map(|part| vec![part.name.clone(), format_part(part.share), format_ns(part.time_ns)]);
    write_table(out, name, &["name", ">share of 2", ">time"], rows, with_time.count())
}

fn write_notes(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let left_out = [
        (summary.left_out.warm_up, "first executions of a module on a device (--with-warm-up counts them)"),
        (summary.left_out.autotuner, "executions of XLA’s autotuner"),
        (summary.left_out.minor, "executions of minor modules"),
    ];
    let left_out = left_out.iter().filter(|(time, _)| time.executions > 0);
    let mut notes: Vec<String> = left_out
        .map(|(time, what)| {
            format!("left out of these tables: {} {what}, {}", time.executions, format_ns(time.span_ns))
        })
        .collect();
    notes.extend(summary.notes.iter().cloned());
    notes.extend(summary.findings.iter().map(ToString::to_string));
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h3>Notes</h3>\n<ul class=\"notes\">")?;
    for note in notes.iter().take(4 * MOST) {
        writeln!(out, "<li>{}</li>", Text(note))?;
    }
    if notes.len() > 4 * MOST {
        writeln!(out, "<li>and {} more</li>", notes.len() - 4 * MOST)?;
    }
    writeln!(out, "</ul>")
}
