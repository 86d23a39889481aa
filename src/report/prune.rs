//! What was removed from a cache folder, or would be.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::gate::Pruned;
use crate::setters;
use crate::timer::pjrt::BoundExecutables;

use super::grid::cells;
use super::{Document, Grid, format_bytes};

/// Entries and executables removed from a cache folder.
pub struct PruneResult<'a> {
    /// The entries.
    pub removed: &'a [Pruned],
    /// The executables.
    pub executables: &'a BoundExecutables,
    /// Whether only executables were requested.
    pub executables_alone: bool,
    /// Whether this is a dry run, which removes nothing.
    pub dry_run: bool,
}

impl<'a> PruneResult<'a> {
    /// Joins what was removed.
    pub fn new(removed: &'a [Pruned], executables: &'a BoundExecutables) -> Self {
        Self { removed, executables, executables_alone: false, dry_run: false }
    }
}

setters!(PruneResult<'a> { executables_alone: bool, dry_run: bool });

impl Document for PruneResult<'_> {
    fn into_json(self) -> impl Serialize {
        let row = |Pruned { key, reason }: &Pruned| {
            json!({"op_id": key.call.op_id, "call_key": key.call.call_key, "direction": key.direction,
                   "device": key.device, "reason": reason})
        };
        let rows: Vec<_> = self.removed.iter().map(row).collect();
        json!({"schema": 1, "removed": rows, "executables": self.executables, "dry_run": self.dry_run})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["operation", "direction", "device", "reason"]);
        for Pruned { key, reason } in self.removed {
            grid.row(cells![key.call, key.direction, key.device, reason]);
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        let removed = if self.dry_run { "would remove" } else { "removed" };
        writeln!(out, "{removed} {}", self.removed.len())?;
        let BoundExecutables { kept, kept_bytes, removed: gone, removed_bytes, kept_reason } = self.executables;
        if self.executables_alone || *gone > 0 {
            let (gone_size, kept_size) = (format_bytes(*removed_bytes), format_bytes(*kept_bytes));
            writeln!(out, "kept executables: {removed} {gone} ({gone_size}), {kept} stay ({kept_size})")?;
            if let Some(why) = kept_reason {
                writeln!(out, "none of them can be removed: {why}")?;
            }
        }
        Ok(())
    }
}
