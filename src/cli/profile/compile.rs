//! `profile compile`: where compilation spends its time.

use std::io::Write;

use clap::Args;

use crate::analysis::HloFiles;
use crate::analysis::compile::{CompileOptions, compile_ranges, compile_report};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::FormatArg;
use crate::report::{CompileProfile, CompileProfiles};

use super::input::CaptureArgs;

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    /// List each pass separately
    #[arg(long)]
    pub by_pass: bool,
    /// List the compilation for XLA's autotuner by phase, not as one phase
    #[arg(long)]
    pub autotuner_detail: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints phases and compilations; exit code 3 if there are none.
pub(super) fn compile(args: &CompileArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let options = CompileOptions { by_pass: args.by_pass, autotuner_detail: args.autotuner_detail };
    let mut profiles = Vec::new();
    for capture in args.captures.read(&HloFiles::default())? {
        let ranges = compile_ranges(&capture);
        let mut report = compile_report(ranges.as_deref().unwrap_or_default(), options);
        if ranges.is_none() {
            report.notes.push("the capture holds no `report_nvtx_pushpop_trace`".to_owned());
        }
        profiles.push(CompileProfile::new(capture.host_or_path(), report));
    }
    let found = profiles.iter().any(|profile| !profile.report.compilations.is_empty());
    args.format.write(out, CompileProfiles::new(profiles))?;
    Ok(if found { exit::FINE } else { exit::NOTHING_MATCHED })
}
