//! The labels of a module as a table.

use std::io::{self, Write};

use serde::Serialize;

use crate::hlo::Scan;

use super::grid::{cells, dash};
use super::{Document, Grid, write_line};

impl Document for &Scan {
    fn into_json(self) -> impl Serialize {
        self
    }

    /// Each distinct label with its evidence, occurrences and first line, then the diagnosis.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid =
            Grid::new(&["operation", "call key", "evidence", ">occurrences", ">line", "direction", "family"]);
        for found in &self.labels {
            let key = found.label.call_key.as_deref().unwrap_or("?");
            let line = dash(found.line, |line| line.to_string());
            let direction = if found.backward { "with backward" } else { "forward" };
            let (op_id, evidence, occurrences) = (&found.label.op_id, found.evidence, found.occurrences);
            grid.row(cells![op_id, key, evidence, occurrences, line, direction, found.family]);
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
