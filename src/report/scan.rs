//! The labels of a module as a table.

use std::io::{self, Write};

use crate::hlo::Scan;

use super::{Grid, write_line};

/// Writes each distinct label with its evidence, occurrences and first line, then the diagnosis.
pub fn write_scan(out: &mut dyn Write, scan: &Scan) -> io::Result<()> {
    let mut grid = Grid::new(&["operation", "call key", "evidence", ">occurrences", ">line", "direction", "family"]);
    for found in &scan.labels {
        grid.row([
            found.label.op_id.clone(),
            found.label.call_key.clone().unwrap_or_else(|| "?".to_owned()),
            found.evidence.to_string(),
            found.occurrences.to_string(),
            found.line.map_or_else(|| "—".to_owned(), |line| line.to_string()),
            if found.backward { "with backward" } else { "forward" }.to_owned(),
            found.family.to_string(),
        ]);
    }
    if !grid.is_empty() {
        grid.write(out)?;
    }
    for diagnosis in &scan.diagnosis {
        write_line(out, format_args!("{}: {}", diagnosis.code, diagnosis.message))?;
    }
    Ok(())
}
