//! `registry`: look at recorded invocations, or add one.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use crate::array::Fill;
use crate::counted::counted;
use crate::registry::{Invocation, Registry};
use crate::report::{Grid, write_json, write_line};

use super::exit;
use super::fault::Fault;
use super::options::{Format, FormatArg};

#[derive(Debug, Clone, Args)]
pub(super) struct RegistryArg {
    /// Folder of recorded invocations
    #[arg(value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: PathBuf,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum RegistryCommand {
    /// List recorded invocations
    Ls(RegistryArg),
    /// Show every invocation of an operation, with its candidates
    Show {
        #[command(flatten)]
        registry: RegistryArg,
        /// `op@vN`, or `op@vN:key`
        name: String,
    },
    /// Check every record, program and array against its digest
    Verify(RegistryArg),
    /// Add an invocation that a JSON file describes (docs/registry.md)
    Add {
        #[command(flatten)]
        registry: RegistryArg,
        /// The description
        file: PathBuf,
    },
}

/// Opens a registry and says on stderr what was left out.
pub(super) fn open(path: &Path) -> Result<Registry, Fault> {
    let registry = Registry::open(path).map_err(Fault::input)?;
    for problem in registry.problems() {
        tracing::warn!("{problem}");
    }
    Ok(registry)
}

/// Runs a `registry` command.
pub(super) fn run(command: &RegistryCommand, out: &mut dyn Write) -> Result<u8, Fault> {
    match command {
        RegistryCommand::Ls(RegistryArg { registry, format }) => list(&open(registry)?, format.format, out),
        RegistryCommand::Show { registry: RegistryArg { registry, format }, name } => {
            show(&open(registry)?, name, format.format, out)
        }
        RegistryCommand::Verify(RegistryArg { registry, format }) => {
            let registry = Registry::open(registry).map_err(Fault::input)?;
            let report = registry.verify();
            match format.format {
                Format::Json => write_json(out, &report)?,
                Format::Table => {
                    for problem in &report.problems {
                        write_line(out, format_args!("{problem}"))?;
                    }
                    for change in &report.changes {
                        let (call, configs) = (&change.call, counted(change.configs.len(), "config"));
                        write_line(out, format_args!("`{call}`: the kernel changed between recordings in {configs}"))?;
                    }
                    for path in &report.unused {
                        write_line(out, format_args!("`{}`: no invocation names it", path.display()))?;
                    }
                    writeln!(
                        out,
                        "{}, {} and {} checked, {}",
                        counted(report.records, "record"),
                        counted(report.programs, "program"),
                        counted(report.arrays, "array"),
                        counted(report.problems.len(), "problem")
                    )?;
                }
            }
            Ok(if report.is_good() { exit::FINE } else { exit::BAD_INPUT })
        }
        RegistryCommand::Add { registry: RegistryArg { registry, .. }, file } => {
            let mut registry = Registry::create_or_open(registry).map_err(Fault::input)?;
            let path = registry.add_described(file).map_err(Fault::input)?;
            writeln!(out, "{}", path.display())?;
            Ok(exit::FINE)
        }
    }
}

fn list(registry: &Registry, format: Format, out: &mut dyn Write) -> Result<u8, Fault> {
    let rows = registry.list();
    if format == Format::Json {
        write_json(out, &json!({"schema": 1, "invocations": rows}))?;
        return Ok(exit::FINE);
    }
    let mut grid = Grid::new(&["operation", "direction", "target", ">candidates", ">programs", "arguments"]);
    for row in &rows {
        grid.row([
            row.call.to_string(),
            row.direction.to_string(),
            row.target.clone(),
            row.candidates.to_string(),
            row.programs.to_string(),
            row.arguments.join(" "),
        ]);
        if let Some(reason) = &row.not_runnable {
            grid.line(&format!("not run: {reason}"));
        }
    }
    if grid.is_empty() {
        writeln!(out, "the registry is empty")?;
    } else {
        grid.write(out)?;
    }
    Ok(exit::FINE)
}

fn show(registry: &Registry, name: &str, format: Format, out: &mut dyn Write) -> Result<u8, Fault> {
    let named =
        |invocation: &&std::sync::Arc<Invocation>| invocation.call.op_id == name || invocation.call.to_string() == name;
    let found: Vec<_> = registry.invocations().iter().filter(named).collect();
    if found.is_empty() {
        let message = format!("no invocation `{name}` in `{}`; `registry ls` lists them", registry.root().display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    if format == Format::Json {
        let found: Vec<&Invocation> = found.into_iter().map(AsRef::as_ref).collect();
        write_json(out, &json!({"schema": 1, "invocations": found}))?;
        return Ok(exit::FINE);
    }
    for invocation in found {
        write_line(out, format_args!("{} {}", invocation.call, invocation.direction))?;
        write_line(out, format_args!("  recorded by {}", invocation.recorder))?;
        for argument in &invocation.arguments {
            let donated = if argument.donated { ", donated" } else { "" };
            let fill = fill_name(&argument.fill);
            write_line(out, format_args!("  argument {} {}, {fill}{donated}", argument.name, argument.spec))?;
        }
        for candidate in &invocation.candidates {
            let mark = if candidate.config == invocation.baseline { "baseline " } else { "candidate" };
            let program = match (&candidate.program, &candidate.not_lowered) {
                (Some(program), _) => format!("program {}", program.digest.to_short()),
                (None, reason) => format!("no program: {}", reason.as_deref().unwrap_or("the record gives no reason")),
            };
            write_line(out, format_args!("  {mark} {} ({program})", candidate.config.to_brief()))?;
        }
    }
    Ok(exit::FINE)
}

/// The fill as the record spells it, without braces.
fn fill_name(fill: &Fill) -> String {
    let text = serde_json::to_value(fill).ok();
    let fields = text.as_ref().and_then(|value| value.as_object());
    let kind = fields.and_then(|fields| fields.get("kind")?.as_str()).unwrap_or("unknown fill");
    let rest = fields.into_iter().flatten().filter(|(name, _)| *name != "kind");
    rest.fold(kind.to_owned(), |text, (name, value)| format!("{text} {name}={value}"))
}
