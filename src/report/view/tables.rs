//! The summary as tables: devices with their totals, modules with their memory, operations, labels.

use std::io::{self, Write};

use crate::analysis::{MeanStd, Part, Summary};
use crate::report::html::escape::Text;
use crate::report::memory::{MEMORY_COLUMNS, known, memory_cells};
use crate::report::naming::program;
use crate::report::roofline::{WORK_COLUMNS, peaks_line, work_cells, worst};
use crate::report::summary::{self, part};
use crate::report::{format_bytes, format_ns, format_part};
use crate::tune::AutotuningResult;

use super::calls::calls;
use super::table::{MOST, write_linked, write_table};

fn mean_std(time: MeanStd) -> String {
    summary::mean_std(time).join(" ").trim_end().to_owned()
}

/// Writes all tables, with notes on them.
pub(super) fn write_tables(out: &mut dyn Write, summary: &Summary, results: &[AutotuningResult]) -> io::Result<()> {
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
    write_memory(out, summary)?;
    let operations = summary.operations.iter().map(|operation| {
        vec![
            operation.operation.clone(),
            format_part(operation.share),
            format_ns(operation.time_ns),
            mean_std(operation.self_time_ns),
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
    let calls = calls(summary, results);
    let links: Vec<Option<String>> = calls.iter().map(|call| Some(call.as_ref()?.id())).collect();
    write_linked(out, ("table-labels", "Labels"), &columns, labels, (summary.labels.len(), &links))?;
    calls.into_iter().take(MOST).flatten().try_for_each(|call| call.write(out))?;
    write_roofline(out, summary)?;
    for (name, parts) in [("By opcode", &summary.opcodes), ("By source line", &summary.sources)] {
        write_parts(out, name, parts)?;
    }
    write_notes(out, summary)
}

/// The memory of the modules, and what is alive at the heap peak of the module with the most time.
fn write_memory(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let known = known(summary);
    let rows = known.iter().map(|(module, memory)| {
        let name = program(&module.module, module.program_id);
        [name].into_iter().chain(memory_cells(memory)).collect()
    });
    let columns = [&["module"][..], &MEMORY_COLUMNS].concat();
    write_table(out, "Memory of each device", &columns, rows, known.len())?;
    let Some((module, memory)) = known.first() else { return Ok(()) };
    let name = format!("Alive at the heap peak of {}", program(&module.module, module.program_id));
    let alive = memory.live.iter().map(|buffer| vec![buffer.instruction.clone(), format_bytes(buffer.bytes)]);
    write_linked(out, ("table-alive", &name), &["instruction", ">bytes"], alive, (memory.live.len(), &[]))
}

/// The operations that lose the most time below the roof.
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
    let skipped = [
        (summary.skipped.warm_up, "first executions of a module on a device (--with-warm-up counts them)"),
        (summary.skipped.autotuner, "executions of XLA’s autotuner"),
        (summary.skipped.minor, "executions of minor modules"),
    ];
    let skipped = skipped.iter().filter(|(time, _)| time.executions > 0);
    let mut notes: Vec<String> = skipped
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
