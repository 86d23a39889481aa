//! `upgrade`: whether cached configs still hold with another compiler.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::MultiProgress;

use crate::report::{UpgradeReport, upgrade_lines, write_upgrade_html};
use crate::upgrade::{UpgradeResult, UpgradedCall, write_junit};

use super::compiler_change::{ChangeArgs, ChangeRun};
use super::compiler_side::NamedCompiler;
use super::fault::Fault;
use super::options::FormatArg;
use super::output_file::OutputFile;
use super::say::say;
use super::scan::nothing_matched;
use super::{exit, registry};

#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    /// The compiler in use: an environment of Python with JAX (its folder, or its Python), or a PJRT plugin (`….so`)
    #[arg(long, value_name = "ENV|PLUGIN")]
    pub old: PathBuf,
    /// The compiler to change to, named likewise
    #[arg(long, value_name = "ENV|PLUGIN")]
    pub new: PathBuf,
    /// The same calls as the new environment records them [default: the old programs]: a change of JAX's lowering is
    /// then told from one of the compiler
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    pub new_registry: Option<PathBuf>,
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the result as one self-contained HTML page (docs/report.md)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

impl UpgradeArgs {
    fn side(&self, flag: &str, place: &Path) -> Result<NamedCompiler, Fault> {
        let name = place.display().to_string();
        self.change.side.compiler(&format!("`{flag} {name}`"), name, place)
    }
}

/// Measures the calls under both compilers and prints whether each config holds.
pub(super) fn run(args: &UpgradeArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let junit = args.junit.as_deref().map(|path| OutputFile::at(path, "report of `--junit`")).transpose()?;
    let report = args.report.as_deref().map(|path| OutputFile::at(path, "report")).transpose()?;
    let [old, new] = [args.side("--old", &args.old)?, args.side("--new", &args.new)?];
    let change = match ChangeRun::new(&args.change, [&old, &new], bars)? {
        Ok(change) => change,
        Err(scan) => return nothing_matched(&scan, &args.format, out),
    };
    let renewed = args.new_registry.as_deref().map(registry::open).transpose()?;
    let (result, stopped_by) = change.measure([&old, &new], renewed.as_ref(), &|_| true)?;
    let printed = args.format.write(out, &result).and_then(|()| out.flush());
    // even if stdout fails, because others wait for it
    if let Some(junit) = junit {
        junit.write(|out| write_junit(out, &result))?;
    }
    if let Some(report) = report {
        let page = UpgradeReport { subject: &args.change.subject_of_page(), result: &result };
        report.write(|out| write_upgrade_html(out, &page))?;
    }
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    upgrade_lines(&result).iter().for_each(|line| say(line));
    printed?;
    Ok(exit_code(&result))
}

fn exit_code(result: &UpgradeResult) -> u8 {
    let is_unmeasured = |call: &UpgradedCall| call.change.is_none();
    if result.interrupted {
        exit::INTERRUPTED
    } else if result.calls.is_empty() {
        exit::NOTHING_MATCHED
    } else if result.calls.iter().any(|call| call.verdict.is_alarm()) {
        exit::REGRESSED
    } else if !result.missed.is_empty() || result.calls.iter().any(is_unmeasured) {
        exit::SOME_FAILED
    } else {
        exit::FINE
    }
}
