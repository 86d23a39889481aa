//! The memory of programs, and what is alive at its peak.

use std::io::{self, Write};

use crate::analysis::{ModuleSummary, Summary};
use crate::hlo::ProgramMemory;
use crate::printable::printable;

use super::Grid;
use super::figures::format_bytes;
use super::grid::cells;
use super::lines::heading;
use super::naming::{program, short};

/// Maximum number of buffers listed.
const NAMED: usize = 5;

/// Headings of [`memory_cells`].
pub(super) const MEMORY_COLUMNS: [&str; 7] =
    [">total", ">arguments", ">results", ">in place", ">constants", ">temporary", ">heap peak"];

/// The modules whose HLO includes their memory, the one with the most time first.
pub(super) fn known(summary: &Summary) -> Vec<(&ModuleSummary, &ProgramMemory)> {
    summary.modules.iter().filter_map(|module| Some((module, module.memory.as_ref()?))).collect()
}

/// What a program takes.
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
    if known.is_empty() {
        return Ok(());
    }
    heading(out, "memory of each device")?;
    let [total, arguments, results, in_place, constants, temporary, heap] = MEMORY_COLUMNS;
    let mut grid = Grid::new(&[total, arguments, results, in_place, constants, temporary, heap, "module"]);
    for (module, memory) in known.iter().take(top) {
        let [total, arguments, results, in_place, constants, temporary, heap] = memory_cells(memory);
        let name = short(&program(&module.module, module.program_id));
        grid.row(cells![total, arguments, results, in_place, constants, temporary, heap, name]);
    }
    grid.write(out)?;
    super::document::write_more(out, top, known.len(), "")?;
    let Some((module, memory)) = known.first().filter(|(_, memory)| !memory.live.is_empty()) else { return Ok(()) };
    let named = memory.live.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|buffer| format!("{} {}", short(&buffer.instruction), format_bytes(buffer.bytes))).collect();
    let more = memory.live.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let name = short(&program(&module.module, module.program_id));
    writeln!(out, "{}", printable(&format!("alive at the heap peak of {name}: {}{more}", named.join(", "))))
}
