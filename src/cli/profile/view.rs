//! `profile view`: a profile as one page, served on loopback or written to a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{Capture, HloFiles, StacksBy, SummaryOptions, stacks_by, summarize};
use crate::cli::fault::Fault;
use crate::cli::options::LabelArgs;
use crate::cli::say::say;
use crate::cli::scan::user_labels;
use crate::cli::{ending, exit};
use crate::report::{MAX_EVENTS, Server, Timeline, ViewPage, view_commands, write_view};

use super::summary::{ModulesArgs, PeaksArg};

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
    // a port that is taken is reported before a large capture is read
    let server = match args.output {
        None => Some(Server::bind(args.port).map_err(|error| unserved(args.port, &error))?),
        Some(_) => None,
    };
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
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let page = ViewPage {
        subject: &names.join(", "),
        summary: &summarize(&captures, &files, options),
        timeline: &timeline,
        by_source: &by_source.time_ns,
        by_op_name: &by_op_name.time_ns,
        commands: &view_commands(&args.files, &captures),
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

fn unserved(port: Option<u16>, error: &std::io::Error) -> Fault {
    let next = if port.is_some() { "; choose another --port, or omit it" } else { "" };
    Fault::input(format!("cannot serve on port {} of 127.0.0.1: {error}{next}", port.unwrap_or(0)))
}
