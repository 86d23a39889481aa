//! The summary as tables: devices with their totals, modules with their memory, operations, labels.

use maud::{Markup, html};

use crate::analysis::{
    DeviceRuntime, KernelShare, KnownKernelShare, MeanStd, ModuleSummary, OperationSummary, Part, Summary,
};
use crate::hlo::{LiveBuffer, ProgramMemory};
use crate::report::grid::cells;
use crate::report::memory::{MEMORY_COLUMNS, known, memory_cells};
use crate::report::naming::program;
use crate::report::roofline::{WORK_COLUMNS, peaks_line, work_cells, worst};
use crate::report::scan::parameters_of;
use crate::report::summary::{self, part};
use crate::report::{format_bytes, format_ns, format_part};
use crate::tune::AutotuningResult;

use super::calls::calls;
use super::table::{MOST, linked_table, table};

fn mean_std(time: MeanStd) -> String {
    summary::mean_std(time).join(" ").trim_end().to_owned()
}

/// Draws all tables, with notes on them.
pub(super) fn tables(summary: &Summary, results: &[AutotuningResult]) -> Markup {
    html! {
        @if summary.modules.is_empty() { p.fine { "No module was executed." } }
        (devices(summary))
        (modules(summary))
        (memory(summary))
        (operations(summary))
        (labels(summary, results))
        (known_kernels(summary))
        (roofline(summary))
        (parts("By opcode", &summary.opcodes))
        (parts("By source line", &summary.sources))
        (kernels(summary))
        (notes(summary))
    }
}

fn devices(summary: &Summary) -> Markup {
    let columns = [
        "device",
        ">executions",
        ">1. operations",
        ">2. modules",
        ">3. wall",
        ">idle inside (of 2)",
        ">idle between (of 3)",
    ];
    let row = |device: &DeviceRuntime| {
        let [operations, modules, wall] = [device.operations_ns, device.modules_ns, device.wall_ns].map(format_ns);
        let idle = [part(device.idle_inside_ns, device.modules_ns), part(device.idle_between_ns, device.wall_ns)];
        cells![device.name(), device.executions, operations, modules, wall, idle[0], idle[1]].to_vec()
    };
    table("Devices", &columns, summary.devices.iter().map(row))
}

fn modules(summary: &Summary) -> Markup {
    let columns = ["module", ">share of 2", ">total", ">executions", ">active", ">span"];
    let row = |module: &ModuleSummary| {
        let [active, span] = [module.active_ns, module.span_ns].map(mean_std);
        let (name, share) = (program(&module.module, module.program_id), format_part(module.share));
        cells![name, share, format_ns(module.total_ns), module.executions, active, span].to_vec()
    };
    table("Modules", &columns, summary.modules.iter().map(row))
}

/// Draws the memory of the modules, and what is alive at the heap peak of the module with the most time.
fn memory(summary: &Summary) -> Markup {
    let known = known(summary);
    let rows = known.iter().map(|(module, memory)| {
        let name = program(&module.module, module.program_id);
        [name].into_iter().chain(memory_cells(memory)).collect()
    });
    let columns = [&["module"][..], &MEMORY_COLUMNS].concat();
    let live = |memory: &ProgramMemory| {
        let cells = |buffer: &LiveBuffer| vec![buffer.instruction.clone(), format_bytes(buffer.bytes)];
        memory.live.iter().map(cells).collect::<Vec<_>>().into_iter()
    };
    html! {
        (table("Memory of each device", &columns, rows))
        @if let Some((module, memory)) = known.first() {
            @let name = format!("Alive at the heap peak of {}", program(&module.module, module.program_id));
            (linked_table("table-alive", &name, &["instruction", ">bytes"], live(memory), &[]))
        }
    }
}

fn operations(summary: &Summary) -> Markup {
    let columns = ["operation", ">share of 2", ">time", ">in an execution", ">events", "opcode", "module", "source"];
    let row = |one: &OperationSummary| {
        let (share, time, own) = (format_part(one.share), format_ns(one.time_ns), mean_std(one.self_time_ns));
        let (module, source) = (program(&one.module, one.program_id), one.source.as_deref().unwrap_or_default());
        cells![one.operation, share, time, own, one.count, one.opcode, module, source].to_vec()
    };
    table("Top operations", &columns, summary.operations.iter().map(row))
}

/// Draws the labels, and the candidates of those whose calls were tuned.
fn labels(summary: &Summary, results: &[AutotuningResult]) -> Markup {
    let rows = summary.labels.iter().map(|label| {
        let (share, time) = (format_part(label.share), format_ns(label.time_ns));
        let first = cells![label.label, share, time, label.operations, label.evidence];
        first.into_iter().chain(work_cells(label.work.as_ref())).collect()
    });
    let columns = [&["label", ">share of 2", ">time", ">operations", "evidence"][..], &WORK_COLUMNS].concat();
    let calls = calls(summary, results);
    let links: Vec<Option<String>> = calls.iter().map(|call| Some(call.as_ref()?.id())).collect();
    html! {
        (linked_table("table-labels", "Labels", &columns, rows, &links))
        @for call in calls.iter().take(MOST).flatten() { (call.section()) }
    }
}

/// Draws the kernels that name themselves, with their block sizes.
fn known_kernels(summary: &Summary) -> Markup {
    let row = |one: &KnownKernelShare| {
        let (share, time) = (format_part(one.share), format_ns(one.time_ns));
        cells![one.kernel.operation, share, time, one.operations, one.kernel.project, parameters_of(&one.kernel)]
            .to_vec()
    };
    let columns = ["kernel", ">share of 2", ">time", ">operations", "project", "parameters"];
    table("Kernels without labels", &columns, summary.known_kernels.iter().map(row))
}

/// Draws the operations that lose the most time below the roof.
fn roofline(summary: &Summary) -> Markup {
    let worst = worst(summary);
    let rows = worst.iter().map(|operation| {
        let first = [operation.operation.clone(), format_part(operation.share)].into_iter();
        let module = program(&operation.module, operation.program_id);
        first.chain(work_cells(operation.work.as_ref())).chain([module]).collect()
    });
    let columns = [&["operation", ">share of 2"][..], &WORK_COLUMNS, &["module"]].concat();
    html! {
        (table("Roofline", &columns, rows))
        @if !worst.is_empty() { p.fine { (peaks_line(summary)) } }
    }
}

fn parts(name: &str, parts: &[Part]) -> Markup {
    let with_time: Vec<&Part> = parts.iter().filter(|part| part.time_ns > 0.0).collect();
    let row = |part: &&Part| vec![part.name.clone(), format_part(part.share), format_ns(part.time_ns)];
    table(name, &["name", ">share of 2", ">time"], with_time.iter().map(row))
}

/// Draws what devices ran in no program.
fn kernels(summary: &Summary) -> Markup {
    let row = |kernel: &KernelShare| {
        let (share, time) = (format_part(kernel.share), format_ns(kernel.time_ns));
        cells![kernel.name, share, time, kernel.count, kernel.device()].to_vec()
    };
    let columns = ["kernel in no program", ">share of the device's time", ">time", ">events", "device"];
    table("Kernels in no program", &columns, summary.kernels.iter().map(row))
}

fn notes(summary: &Summary) -> Markup {
    let skipped = [
        (summary.skipped.warm_up, "first executions of a module on a device (--with-warm-up counts them)"),
        (summary.skipped.autotuner, "executions of XLA’s autotuner"),
        (summary.skipped.minor, "executions of minor modules"),
    ];
    let skipped = skipped.iter().filter(|(time, _)| time.executions > 0).map(|(time, what)| {
        format!("left out of these tables: {} {what}, {}", time.executions, format_ns(time.span_ns))
    });
    let findings = summary.findings.iter().map(ToString::to_string);
    let notes: Vec<String> = skipped.chain(summary.notes.iter().cloned()).chain(findings).collect();
    html! {
        @if !notes.is_empty() {
            h3 { "Notes" }
            ul.notes {
                @for note in notes.iter().take(4 * MOST) { li { (note) } }
                @if notes.len() > 4 * MOST { li { "and " (notes.len() - 4 * MOST) " more" } }
            }
        }
    }
}
