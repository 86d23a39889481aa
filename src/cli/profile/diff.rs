//! `profile diff`: what became faster between two profiles.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::analysis::{HloFiles, profile_diff};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::FormatArg;
use crate::report::Top;

use super::input::read_captures;

#[derive(Debug, Args)]
pub(crate) struct ProfileDiffArgs {
    /// The profile before: an XSpace (`.xplane.pb`), gzip of one, a log folder of TensorBoard (its newest run, all
    /// hosts); a capture of nsys-jax
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The profile after
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Also count the first execution of each module on each device
    #[arg(long)]
    pub with_warm_up: bool,
    /// Number of operations to list [default: 20 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints differences; exit code 3 if nothing ran in both.
pub(super) fn diff(args: &ProfileDiffArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let open = |file: &PathBuf| read_captures(std::slice::from_ref(file), &HloFiles::default());
    let diff = profile_diff(&open(&args.before)?, &open(&args.after)?, args.with_warm_up);
    let found = diff.modules.iter().any(|row| row.before.is_some() && row.after.is_some());
    args.format.write(out, Top { of: diff, most: args.top })?;
    Ok(if found { exit::FINE } else { exit::NOTHING_MATCHED })
}
