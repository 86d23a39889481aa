//! The labels of a module as a table.

use std::io::{self, Write};

use serde::Serialize;

use crate::hlo::Scan;

use super::grid::dash;
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
            grid.row([
                found.label.op_id.clone(),
                found.label.call_key.clone().unwrap_or_else(|| "?".to_owned()),
                found.evidence.to_string(),
                found.occurrences.to_string(),
                dash(found.line, |line| line.to_string()),
                if found.backward { "with backward" } else { "forward" }.to_owned(),
                found.family.to_string(),
            ]);
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
