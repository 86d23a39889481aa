//! The labels of a module as a table.

use std::io::{self, Write};

use serde::Serialize;

use crate::counted::counted;
use crate::hlo::Scan;

use super::grid::{cells, dash};
use super::{Document, Grid, write_line};

impl Document for &Scan {
    fn into_json(self) -> impl Serialize {
        self
    }

    /// Each distinct label with its evidence, call sites (or stamps, where the form shows no more) and first line, then the
    /// diagnosis.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid =
            Grid::new(&["operation", "call key", "evidence", ">call sites", ">line", "direction", "family"]);
        for found in &self.labels {
            let key = found.label.call_key.as_deref().unwrap_or("?");
            let line = dash(found.line, |line| line.to_string());
            let direction = if found.backward { "with backward" } else { "forward" };
            let calls = found.known_calls().map(|calls| calls.to_string());
            let calls = calls.unwrap_or_else(|| counted(usize::try_from(found.occurrences).unwrap_or(usize::MAX), "stamp"));
            grid.row(cells![found.label.op_id, key, found.evidence, calls, line, direction, found.family]);
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        for diagnosis in &self.diagnosis {
            write_line(out, format_args!("{}: {}", diagnosis.code, diagnosis.message))?;
        }
        Ok(())
    }
}
