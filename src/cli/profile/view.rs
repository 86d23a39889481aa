//! `profile view`: a profile as one page, served on loopback or written to a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{
    Capture, Counting, HloFiles, ProfileDiff, Stacks, StacksBy, Summary, SummaryOptions, profile_diff, stacks_by,
    summarize,
};
use crate::cli::fault::Fault;
use crate::cli::options::{LabelArgs, PeaksArg};
use crate::cli::report::read_results;
use crate::cli::say::say;
use crate::cli::scan::user_labels;
use crate::cli::{ending, exit};
use crate::report::{AfterPage, MAX_EVENTS, Server, Timeline, ViewPage, view_commands, write_view};

use super::summary::ModulesArgs;

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// XSpaces (`.xplane.pb`), plain or gzipped, log folders of TensorBoard (the newest run, all hosts), or `-`;
    /// captures of nsys-jax, one per process, as a zip or a folder
    #[arg(value_name = "FILE|LOGDIR", required = true)]
    files: Vec<PathBuf>,
    /// Port of 127.0.0.1 to serve on [default: a free one]
    #[arg(long, value_name = "N", conflicts_with = "output")]
    port: Option<u16>,
    /// Write the page to a file and exit; replaces an existing file. `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not serve the page; implied by `-o`
    #[arg(long, requires = "output")]
    no_serve: bool,
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
    peaks: PeaksArg,
}

pub(super) fn view(args: &ViewArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let user = user_labels(&args.labels)?;
    let peaks = args.peaks.read()?;
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    // a taken port is reported before a large capture is read
    let server = match args.output {
        None => Some(Server::bind(args.port).map_err(|error| unserved(args.port, &error))?),
        Some(_) => None,
    };
    let results = args.results.as_deref().map(read_results).transpose()?.unwrap_or_default();
    let captures = Capture::read(&args.files, &files)?;
    let timeline = Timeline::new(&captures, MAX_EVENTS);
    if timeline.drawn == 0 {
        return Err(Fault::new(
            exit::NOTHING_MATCHED,
            "the capture has no event with a time: there is nothing to view",
        ));
    }
    let options = SummaryOptions { counting: args.modules.counting(), labels: user.as_ref(), peaks: peaks.as_ref() };
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
    match (&args.output, server) {
        (Some(path), _) if path == Path::new("-") => write_view(out, &page)?,
        (Some(path), _) => {
            write_file(path, false, |file| write_view(file, &page))?;
            writeln!(out, "{}", path.display())?;
        }
        (None, Some(server)) => {
            let mut bytes = Vec::new();
            write_view(&mut bytes, &page)?;
            drop(captures);
            ending::end_with(exit::FINE)?;
            writeln!(out, "{}", server.url())?;
            out.flush()?;
            say("open it in a browser of this machine; Ctrl-C ends");
            server.run(bytes);
        }
        (None, None) => {}
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
        let captures = Capture::read(&[path.to_owned()], files)?;
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

fn unserved(port: Option<u16>, error: &std::io::Error) -> Fault {
    let next = if port.is_some() { "; choose another --port, or omit it" } else { "" };
    Fault::input(format!("cannot serve on port {} of 127.0.0.1: {error}{next}", port.unwrap_or(0)))
}
