//! Recorded invocations: listed, shown, checked.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use crate::array::Fill;
use crate::counted::counted;
use crate::registry::{Invocation, ListedInvocation, VerifyReport};

use super::document::versioned;
use super::grid::cells;
use super::{Document, Grid, line, write_lines};

/// A line for each invocation.
pub struct RegistryListing(pub Vec<ListedInvocation>);

impl Document for RegistryListing {
    fn into_json(self) -> impl Serialize {
        json!({"schema": 1, "invocations": self.0})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["operation", "direction", "target", ">candidates", ">programs", "arguments"]);
        for row in &self.0 {
            let arguments = row.arguments.join(" ");
            grid.row(cells![row.call, row.direction, row.target, row.candidates, row.programs, arguments]);
            if let Some(reason) = &row.not_runnable {
                grid.line(&format!("not run: {reason}"));
            }
        }
        grid.write_or(out, "the registry is empty")
    }
}

/// Where a record was written.
pub struct AddedRecord(pub PathBuf);

impl Document for AddedRecord {
    fn into_json(self) -> impl Serialize {
        json!({"schema": 1, "path": self.0.display().to_string()})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.0.display())
    }
}

/// Invocations with their candidates.
pub struct Invocations<'a>(pub Vec<&'a Invocation>);

impl Document for Invocations<'_> {
    fn into_json(self) -> impl Serialize {
        json!({"schema": 1, "invocations": self.0})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for invocation in self.0 {
            line!(out, "{} {}", invocation.call, invocation.direction)?;
            line!(out, "  recorded by {}", invocation.recorder)?;
            for argument in &invocation.arguments {
                let donated = if argument.donated { ", donated" } else { "" };
                let fill = fill_name(&argument.fill);
                line!(out, "  argument {} {}, {fill}{donated}", argument.name, argument.spec)?;
            }
            for candidate in &invocation.candidates {
                let mark = if candidate.config == invocation.baseline { "baseline " } else { "candidate" };
                let program = match (&candidate.program, &candidate.not_lowered) {
                    (Some(program), _) => format!("program {}", program.digest.to_short()),
                    (None, None) if invocation.is_lowered_on_demand() => "lowered on demand".to_owned(),
                    (None, reason) => {
                        format!("no program: {}", reason.as_deref().unwrap_or("the record gives no reason"))
                    }
                };
                line!(out, "  {mark} {} ({program})", candidate.config.to_brief())?;
            }
        }
        Ok(())
    }
}

impl Document for &VerifyReport {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        write_lines(out, &self.problems)?;
        for change in &self.changes {
            let (call, configs) = (&change.call, counted(change.configs.len(), "config"));
            line!(out, "`{call}`: the kernel changed between recordings in {configs}")?;
        }
        for path in &self.unused {
            line!(out, "`{}`: no invocation names it", path.display())?;
        }
        writeln!(
            out,
            "{}, {} and {} checked, {}",
            counted(self.records, "record"),
            counted(self.programs, "program"),
            counted(self.arrays, "array"),
            counted(self.problems.len(), "problem")
        )
    }
}

/// Returns the fill as the record spells it, without braces.
fn fill_name(fill: &Fill) -> String {
    let text = serde_json::to_value(fill).ok();
    let fields = text.as_ref().and_then(|value| value.as_object());
    let kind = fields.and_then(|fields| fields.get("kind")?.as_str()).unwrap_or("unknown fill");
    let rest = fields.into_iter().flatten().filter(|(name, _)| *name != "kind");
    rest.fold(kind.to_owned(), |text, (name, value)| format!("{text} {name}={value}"))
}
