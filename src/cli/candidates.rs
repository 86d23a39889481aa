//! `candidates`: shows search spaces.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::candidates::{CandidateSpace, OptionSpace, Spaces};
use crate::counted::counted;
use crate::report::{CompilerOptions, SpaceConfigs, write_line};

use super::exit;
use super::fault::Fault;
use super::options::FormatArg;

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
    /// List the compiler options that `--compiler-options` tries, and those that it knows but does not try
    /// (docs/options.md)
    Options {
        /// The platform: `cpu`, `cuda` or `tpu` [default: all]
        platform: Option<String>,
        #[command(flatten)]
        format: FormatArg,
    },
    /// Check a search space file
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub(super) struct SpacesArg {
    /// Folder of search spaces that override the shipped ones
    #[arg(long, value_name = "DIR")]
    pub candidates: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Maximum number of configs printed of one space.
const MAX_SHOWN: usize = 100_000;

/// The shipped spaces, overridden by those of a folder; invalid files are reported on stderr.
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
            format.write(out, &spaces(candidates.as_deref())?)?;
            Ok(exit::FINE)
        }
        CandidatesCommand::Show { op, spaces: SpacesArg { candidates, format } } => {
            let spaces = spaces(candidates.as_deref())?;
            let space = spaces.get(op).ok_or_else(|| {
                Fault::new(exit::NOTHING_MATCHED, format!("no search space for `{op}`; `candidates ls` lists them"))
            })?;
            let mut configs =
                space.configs().take(MAX_SHOWN + 1).collect::<Result<Vec<_>, _>>().map_err(Fault::input)?;
            if configs.len() > MAX_SHOWN {
                tracing::warn!("the space has more than {MAX_SHOWN} configs; the first are shown");
                configs.truncate(MAX_SHOWN);
            }
            format.write(out, SpaceConfigs::new(space, configs))?;
            Ok(exit::FINE)
        }
        CandidatesCommand::Options { platform, format } => {
            let all = OptionSpace::all_built_in();
            let wanted = all.iter().filter(|space| platform.as_ref().is_none_or(|name| space.platform() == name));
            let spaces: Vec<&OptionSpace> = wanted.collect();
            if spaces.is_empty() {
                let known: Vec<&str> = all.iter().map(OptionSpace::platform).collect();
                let platform = platform.as_deref().unwrap_or_default();
                let message =
                    format!("no compiler options are known for `{platform}`; there are: {}", known.join(", "));
                return Err(Fault::new(exit::NOTHING_MATCHED, message));
            }
            format.write(out, CompilerOptions::new(spaces))?;
            Ok(exit::FINE)
        }
        CandidatesCommand::Check { file } => {
            let space = CandidateSpace::open(file).map_err(Fault::input)?;
            write_line(out, format_args!("{}: at most {}", space.op(), counted(space.count_bound(), "config")))?;
            Ok(exit::FINE)
        }
    }
}
