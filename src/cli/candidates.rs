//! `candidates`: look at search spaces.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use crate::candidates::{CandidateSpace, Spaces};
use crate::config::Config;
use crate::counted::counted;
use crate::printable::printable_json;
use crate::report::{Grid, write_json, write_line};

use super::exit;
use super::fault::Fault;
use super::options::{Format, FormatArg};

#[derive(Debug, Subcommand)]
pub(super) enum CandidatesCommand {
    /// List the search spaces
    Ls(SpacesArg),
    /// List the configs of an operation's search space
    Show {
        /// The operation
        op: String,
        #[command(flatten)]
        spaces: SpacesArg,
    },
    /// Check a search space's file
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub(super) struct SpacesArg {
    /// Folder of search spaces that go before those shipped
    #[arg(long, value_name = "DIR")]
    pub candidates: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Configs printed of one space.
const MAX_SHOWN: usize = 100_000;

/// The shipped spaces, with those of a folder in place of them; files that are not good are said on stderr.
pub(super) fn spaces(folder: Option<&Path>) -> Result<Spaces, Fault> {
    let mut spaces = Spaces::built_in().map_err(Fault::input)?;
    if let Some(folder) = folder {
        for error in spaces.override_from(folder) {
            tracing::warn!("{error}");
        }
    }
    Ok(spaces)
}

/// Runs a `candidates` command.
pub(super) fn run(command: &CandidatesCommand, out: &mut dyn Write) -> Result<u8, Fault> {
    match command {
        CandidatesCommand::Ls(SpacesArg { candidates, format }) => {
            list(&spaces(candidates.as_deref())?, format.format, out)
        }
        CandidatesCommand::Show { op, spaces: SpacesArg { candidates, format } } => {
            let spaces = spaces(candidates.as_deref())?;
            let space = spaces.get(op).ok_or_else(|| {
                Fault::new(exit::NOTHING_MATCHED, format!("no search space for `{op}`; `candidates ls` lists them"))
            })?;
            show(space, format.format, out)
        }
        CandidatesCommand::Check { file } => {
            let space = CandidateSpace::open(file).map_err(Fault::input)?;
            write_line(out, format_args!("{}: at most {}", space.op(), counted(space.count_bound(), "config")))?;
            Ok(exit::FINE)
        }
    }
}

fn list(spaces: &Spaces, format: Format, out: &mut dyn Write) -> Result<u8, Fault> {
    if format == Format::Json {
        let rows: Vec<_> = spaces
            .iter()
            .map(|space| {
                let parameters: serde_json::Map<_, _> =
                    space.parameters().map(|(name, values)| (name.to_owned(), json!(values))).collect();
                json!({"op": space.op(), "parameters": parameters, "baseline": space.baseline()})
            })
            .collect();
        write_json(out, &json!({"schema": 1, "spaces": rows}))?;
        return Ok(exit::FINE);
    }
    let mut grid = Grid::new(&["operation", ">at most", "baseline", "parameters"]);
    for space in spaces.iter() {
        let names: Vec<&str> = space.parameters().map(|(name, _)| name).collect();
        grid.row([
            space.op().to_owned(),
            counted(space.count_bound(), "config"),
            space.baseline().to_brief(),
            names.join(" "),
        ]);
    }
    grid.write(out)?;
    Ok(exit::FINE)
}

fn show(space: &CandidateSpace, format: Format, out: &mut dyn Write) -> Result<u8, Fault> {
    let configs = space.configs().take(MAX_SHOWN + 1).collect::<Result<Vec<Config>, _>>().map_err(Fault::input)?;
    let shown = configs.get(..MAX_SHOWN).unwrap_or(&configs);
    if shown.len() < configs.len() {
        tracing::warn!("the space has more than {MAX_SHOWN} configs; the first are shown");
    }
    if format == Format::Json {
        write_json(out, &json!({"schema": 1, "op": space.op(), "baseline": space.baseline(), "configs": shown}))?;
        return Ok(exit::FINE);
    }
    for config in shown {
        let mark = if config == space.baseline() { " (baseline)" } else { "" };
        writeln!(out, "{}{mark}", printable_json(&config.to_string()))?;
    }
    Ok(exit::FINE)
}
