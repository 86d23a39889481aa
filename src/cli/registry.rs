//! `registry`: shows recorded invocations, or adds one.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::registry::{Invocation, Registry};
use crate::report::{AddedRecord, Invocations, RegistryListing};

use super::exit;
use super::fault::Fault;
use super::options::FormatArg;

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

/// The registry of a module: the named one, else `registry` beside it.
pub(super) fn folder_for(module: &Path, named: Option<&Path>) -> Result<PathBuf, Fault> {
    let beside = Registry::beside(module);
    match named {
        Some(folder) => Ok(folder.to_owned()),
        None if beside.is_dir() => Ok(beside),
        None => {
            let message = format!(
                "no registry: `{}` does not exist; name one with `--registry DIR`, or tune how the whole module is \
                 compiled with `--only-compiler-options`",
                beside.display()
            );
            Err(Fault::input(message))
        }
    }
}

/// Opens a registry and reports on stderr what was left out.
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
        RegistryCommand::Ls(RegistryArg { registry, format }) => {
            format.write(out, RegistryListing(open(registry)?.list()))?;
            Ok(exit::FINE)
        }
        RegistryCommand::Show { registry: RegistryArg { registry, format }, name } => {
            show(&open(registry)?, name, format, out)
        }
        RegistryCommand::Verify(RegistryArg { registry, format }) => {
            let registry = Registry::open(registry).map_err(Fault::input)?;
            let report = registry.verify();
            format.write(out, &report)?;
            Ok(if report.is_good() { exit::FINE } else { exit::BAD_INPUT })
        }
        RegistryCommand::Add { registry: RegistryArg { registry, format }, file } => {
            let mut registry = Registry::create_or_open(registry).map_err(Fault::input)?;
            let path = registry.add_described(file).map_err(Fault::input)?;
            format.write(out, AddedRecord(path))?;
            Ok(exit::FINE)
        }
    }
}

fn show(registry: &Registry, name: &str, format: &FormatArg, out: &mut dyn Write) -> Result<u8, Fault> {
    let named =
        |invocation: &&std::sync::Arc<Invocation>| invocation.call.op_id == name || invocation.call.to_string() == name;
    let found: Vec<&Invocation> = registry.invocations().iter().filter(named).map(AsRef::as_ref).collect();
    if found.is_empty() {
        let message = format!("no invocation `{name}` in `{}`; `registry ls` lists them", registry.root().display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    format.write(out, Invocations(found))?;
    Ok(exit::FINE)
}
