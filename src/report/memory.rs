//! The memory of programs, and what is alive at its peak.

use std::io::{self, Write};

use crate::analysis::{ModuleSummary, Summary};
use crate::hlo::ProgramMemory;

use super::figures::format_bytes;
use super::grid::write_section;
use super::line;
use super::naming::{program, short};

/// Maximum number of buffers listed.
const NAMED: usize = 5;

/// Headings of [`memory_cells`].
pub(super) const MEMORY_COLUMNS: [&str; 7] =
    [">total", ">arguments", ">results", ">in place", ">constants", ">temporary", ">heap peak"];

/// Returns the modules whose HLO includes their memory, the one with the most time first.
pub(super) fn known(summary: &Summary) -> Vec<(&ModuleSummary, &ProgramMemory)> {
    summary.modules.iter().filter_map(|module| Some((module, module.memory.as_ref()?))).collect()
}

/// Returns the cells of what a program takes.
pub(super) fn memory_cells(memory: &ProgramMemory) -> [String; 7] {
    [
        memory.total_bytes,
        memory.argument_bytes,
        memory.output_bytes,
        memory.alias_bytes,
        memory.constant_bytes,
        memory.temporary_bytes,
        memory.heap_peak_bytes,
    ]
    .map(format_bytes)
}

/// Writes the memory of the modules whose HLO includes it, and what is alive at the heap peak of the first.
pub(super) fn write_memory(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    let known = known(summary);
    let name = |module: &ModuleSummary| short(&program(&module.module, module.program_id));
    let rows = known.iter().map(|(module, memory)| memory_cells(memory).into_iter().chain([name(module)]));
    write_section(out, "memory of each device", &[&MEMORY_COLUMNS[..], &["module"]].concat(), rows, top)?;
    let Some((module, memory)) = known.first().filter(|(_, memory)| !memory.live.is_empty()) else { return Ok(()) };
    let named = memory.live.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|buffer| format!("{} {}", short(&buffer.instruction), format_bytes(buffer.bytes))).collect();
    let more = memory.live.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    line!(out, "alive at the heap peak of {}: {}{more}", name(module), named.join(", "))
}
