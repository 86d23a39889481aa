//! `profile summary`: how the time of a run was spent.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{Counting, HloFiles, Summary, SummaryOptions, UserNames, summarize};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{FormatArg, LabelArgs, PeaksArg};
use crate::cli::scan::{KernelsArg, user_labels};
use crate::report::{Top, write_spread_plot};

use super::input::CaptureArgs;

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    #[command(flatten)]
    pub modules: ModulesArgs,
    #[command(flatten)]
    pub labels: LabelArgs,
    #[command(flatten)]
    pub kernels: KernelsArg,
    #[command(flatten)]
    pub peaks: PeaksArg,
    /// Write a plot of the compute operations: deviation over mean against mean (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Number of lines in each list [default: 10 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// What is counted, and where to find HLO that a capture lacks.
#[derive(Debug, Clone, Args)]
pub(crate) struct CountedArgs {
    /// HLO of what ran, as HloProto, HloModuleProto or text, or a folder that XLA dumped it to, if the capture holds
    /// none; may be repeated
    #[arg(long, value_name = "FILE")]
    pub hlo: Vec<PathBuf>,
    /// Also count the first execution of each module on each device
    #[arg(long)]
    pub with_warm_up: bool,
}

/// What is counted when all modules are added up.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModulesArgs {
    #[command(flatten)]
    pub counted: CountedArgs,
    /// Leave out the modules that together take at most this part of all modules' time, the shortest first [without a
    /// value: 0.01, as in nsys-jax's notebook]
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "0.01")]
    #[arg(value_parser = crate::cli::options::part)]
    pub without_minor: Option<f64>,
}

impl ModulesArgs {
    /// Which executions count.
    pub(super) fn counting(&self) -> Counting {
        Counting { with_warm_up: self.counted.with_warm_up, minor: self.without_minor.unwrap_or(0.0) }
    }
}

pub(super) fn summary(args: &SummaryArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let (labels, kernels) = (user_labels(&args.labels)?, args.kernels.templates()?);
    let names = UserNames::new(labels.as_ref(), Some(&kernels));
    let peaks = args.peaks.read()?;
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    let captures = args.captures.read(&files)?;
    let options = SummaryOptions { counting: args.modules.counting(), names, peaks: peaks.as_ref() };
    let summary = summarize(&captures, &files, options);
    if let Some(path) = &args.plot {
        plot(path, &summary)?;
    }
    let is_empty = summary.modules.is_empty() && summary.kernels.is_empty();
    args.format.write(out, Top { of: summary, most: args.top })?;
    Ok(if is_empty { exit::NOTHING_MATCHED } else { exit::FINE })
}

fn plot(path: &Path, summary: &Summary) -> Result<(), Fault> {
    let mut svg = Vec::new();
    if !write_spread_plot(&mut svg, summary)? {
        let message =
            format!("nothing to plot into `{}`: no compute operation ran in two executions that count", path.display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    Ok(write_file(path, false, |file| file.write_all(&svg))?)
}
