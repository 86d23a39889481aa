//! The labels and kernels of a module as tables.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::counted::counted;
use crate::hlo::{FoundKernel, KnownKernel, Scan};

use super::grid::{cells, dash};
use super::{Document, Grid, line};

impl Document for &Scan {
    fn into_json(self) -> impl Serialize {
        self
    }

    /// Writes each distinct label with its evidence, call sites (or stamps, where the form shows no more) and first
    /// line, then each kernel, then the diagnosis.
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
        if !self.kernels.is_empty() {
            if !self.labels.is_empty() {
                writeln!(out)?;
            }
            kernels(&self.kernels).write(out)?;
        }
        for diagnosis in &self.diagnosis {
            line!(out, "{}: {}", diagnosis.code, diagnosis.message)?;
        }
        Ok(())
    }
}

fn kernels(kernels: &[FoundKernel]) -> Grid {
    let mut grid = Grid::new(&["kernel", "operation", "project", ">calls", ">line", "parameters"]);
    for kernel in kernels {
        let known = kernel.known.as_ref();
        let operation = known.map_or("?", |known| known.operation.as_str());
        let project = known.map_or("?", |known| known.project.as_str());
        let line = dash(kernel.line, |line| line.to_string());
        let parameters = known.map_or_else(|| "?".to_owned(), parameters_of);
        grid.row(cells![shorter(&kernel.name), operation, project, kernel.calls, line, parameters]);
    }
    grid
}

/// The parameters of a kernel as far as they can be read, and whether they are its project's defaults.
pub(super) fn parameters_of(kernel: &KnownKernel) -> String {
    let parameters = each(&kernel.parameters);
    match kernel.on_defaults {
        Some(true) => format!("{parameters} (defaults)"),
        _ if parameters.is_empty() => "?".to_owned(),
        _ => parameters,
    }
}

/// `bq=8 bkv=512`.
fn each(parameters: &BTreeMap<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    parameters.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A name of at most so many characters.
fn shorter(name: &str) -> String {
    const MOST: usize = 48;
    match name.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", name.get(..cut).unwrap_or_default()),
        None => name.to_owned(),
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
