//! The labels of a module as a table.

use std::io::{self, Write};

use serde::Serialize;

use crate::counted::counted;
use crate::hlo::Scan;

use super::grid::{cells, dash};
use super::{Document, Grid, line};

impl Document for &Scan {
    fn into_json(self) -> impl Serialize {
        self
    }

    /// Writes each distinct label with its evidence, call sites (or stamps, where the form shows no more) and first
    /// line, then the diagnosis.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["operation", "call key", "evidence", ">call sites", ">line", "direction", "family"]);
        for found in &self.labels {
            let key = found.label.call_key.as_deref().unwrap_or("?");
            let line = dash(found.line, |line| line.to_string());
            let direction = if found.backward { "with backward" } else { "forward" };
            let calls = found.known_calls().map(|calls| calls.to_string());
            let calls = calls.unwrap_or_else(|| counted(found.occurrences, "stamp"));
            grid.row(cells![found.label.op_id, key, found.evidence, calls, line, direction, found.family]);
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        for diagnosis in &self.diagnosis {
            line!(out, "{}: {}", diagnosis.code, diagnosis.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlo::{FoundLabel, Label, ModuleForm};

    #[test]
    fn calls_are_counted_where_the_form_shows_them_and_stamps_elsewhere() {
        for (forward, backward, count) in [(2, 1, "2"), (0, 1, "1"), (300, 0, "300"), (0, 0, "26 stamps")] {
            let mut found = FoundLabel::new(Label::new("op@v1", Some("k".to_owned())), "user");
            (found.occurrences, found.line, found.backward) = (26, Some(7), true);
            (found.forward_calls, found.backward_calls) = (forward, backward);
            let mut out = Vec::new();
            (&Scan::new(ModuleForm::StablehloText, vec![found])).write_table(&mut out).unwrap();
            let line = String::from_utf8(out).unwrap().lines().nth(1).unwrap().to_owned();
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words, format!("op@v1 k exact {count} 7 with backward user"));
        }
    }
}
