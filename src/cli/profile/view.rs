//! `profile view`: a profile as one page, written to a file and opened in a browser.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{
    Capture, Counting, HloFiles, ProfileDiff, Stacks, StacksBy, Summary, SummaryOptions, UserNames, profile_diff,
    stacks_by, summarize,
};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{LabelArgs, PeaksArg};
use crate::cli::report::read_results;
use crate::cli::say::say;
use crate::cli::scan::{KernelsArg, user_labels};
use crate::report::{AfterPage, MAX_EVENTS, Timeline, ViewPage, view_commands, write_view};

use super::input::read_captures;
use super::summary::ModulesArgs;

/// The page without `-o`. A browser in a sandbox of its own may not see the folder of temporary files.
const DEFAULT_PAGE: &str = "autotune-lowered-view.html";
const OPENER: &str = "xdg-open";
/// How long a failure of the opener is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// XSpaces (`.xplane.pb`), plain or gzipped, log folders of TensorBoard (the newest run, all hosts), or `-`;
    /// captures of nsys-jax, one per process, as a zip or a folder
    #[arg(value_name = "FILE|LOGDIR", required = true)]
    files: Vec<PathBuf>,
    /// Write the page to this file, replacing an existing one, and open no browser; `-` for standard output [default:
    /// write `autotune-lowered-view.html` to the working directory, and open it]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A profile of the same program after a change, a file or a log folder: the page shows the differences, as flame
    /// graphs and tables
    #[arg(long, value_name = "FILE|LOGDIR")]
    after: Option<PathBuf>,
    /// Tuning results, as a cache folder or `tune --format json` output; labels then link to their candidates
    #[arg(long, value_name = "CACHE|JSON")]
    results: Option<PathBuf>,
    #[command(flatten)]
    modules: ModulesArgs,
    #[command(flatten)]
    labels: LabelArgs,
    #[command(flatten)]
    kernels: KernelsArg,
    #[command(flatten)]
    peaks: PeaksArg,
}

pub(super) fn view(args: &ViewArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let (labels, kernels) = (user_labels(&args.labels)?, args.kernels.templates()?);
    let names = UserNames::new(labels.as_ref(), Some(&kernels));
    let peaks = args.peaks.read()?;
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    let results = args.results.as_deref().map(read_results).transpose()?.unwrap_or_default();
    let captures = read_captures(&args.files, &files)?;
    let timeline = Timeline::new(&captures, MAX_EVENTS);
    if timeline.drawn == 0 {
        return Err(Fault::new(
            exit::NOTHING_MATCHED,
            "the capture has no event with a time: there is nothing to view",
        ));
    }
    let options = SummaryOptions { counting: args.modules.counting(), names, peaks: peaks.as_ref() };
    let frames = [StacksBy::Source, StacksBy::OpName];
    let [by_source, by_op_name] = stacks_by(&captures, &files, frames, args.modules.counting());
    let summary = summarize(&captures, &files, options);
    let after = args
        .after
        .as_deref()
        .map(|after| AfterProfile::read(after, &captures, &files, args.modules.counting()))
        .transpose()?;
    let executions = |summary: &Summary| summary.devices.iter().map(|device| device.executions).sum::<u64>();
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let page = ViewPage {
        subject: &names.join(", "),
        summary: &summary,
        timeline: &timeline,
        by_source: &by_source.time_ns,
        by_op_name: &by_op_name.time_ns,
        commands: &view_commands(&args.files, &captures),
        after: after.as_ref().map(|after| {
            let stacks = [&after.by_source.time_ns, &after.by_op_name.time_ns];
            AfterPage::new(&after.name, &after.diff, stacks, [executions(&summary), executions(&after.summary)])
        }),
        results: &results,
    };
    let path = args.output.as_deref().unwrap_or(Path::new(DEFAULT_PAGE));
    if path == Path::new("-") {
        write_view(out, &page)?;
        return Ok(exit::FINE);
    }
    write_file(path, false, |file| write_view(file, &page))?;
    writeln!(out, "{}", path.display())?;
    if args.output.is_none() {
        out.flush()?;
        open_in_browser(path);
    }
    Ok(exit::FINE)
}

/// A profile after a change.
struct AfterProfile {
    name: String,
    summary: Summary,
    diff: ProfileDiff,
    by_source: Stacks,
    by_op_name: Stacks,
}

impl AfterProfile {
    fn read(path: &Path, before: &[Capture], files: &HloFiles, counting: Counting) -> Result<Self, Fault> {
        let captures = read_captures(&[path.to_owned()], files)?;
        let options = SummaryOptions { counting, ..SummaryOptions::default() };
        let [by_source, by_op_name] = stacks_by(&captures, files, [StacksBy::Source, StacksBy::OpName], counting);
        Ok(Self {
            name: path.display().to_string(),
            summary: summarize(&captures, files, options),
            diff: profile_diff(before, &captures, counting.with_warm_up),
            by_source,
            by_op_name,
        })
    }
}

/// Opens a page as the desktop does. A browser may stay in the foreground, so only an early failure is waited for.
fn open_in_browser(page: &Path) {
    let opened = path::absolute(page).and_then(|page| {
        let mut opener = Command::new(OPENER);
        opener.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C in this terminal does not end the browser
        let mut opener = opener.process_group(0).spawn()?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match opener.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(io::Error::other(status.to_string())),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
        Ok(())
    });
    if let Err(error) = opened {
        say(&format!("cannot open a browser with `{OPENER}`: {error}; open `{}` yourself", page.display()));
    }
}
