//! `profile list` and `profile extract`: the runs of a log folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::Capture;
use crate::analysis::trace::{TraceFormat, TraceOptions, write_file};
use crate::profile::{CaptureFile, CaptureRun, XSpace, capture_runs};

use super::trace;
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::FormatArg;

#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// A log folder of `jax.profiler.trace`, of TensorBoard, or of a tuning run; subfolders are searched
    #[arg(value_name = "LOGDIR")]
    folder: PathBuf,
    #[command(flatten)]
    format: FormatArg,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ExtractArgs {
    /// A log folder, as for `profile list`
    #[arg(value_name = "LOGDIR")]
    folder: PathBuf,
    /// The run, as `profile list` names it [default: the latest]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Only this host's capture [default: all; an XSpace holds one]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// File to write: `.xplane.pb` or `.xplane.pb.gz` for the capture, `.pftrace`, `.json` or `.json.gz` for a trace of
    /// it
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Write the stats of events as arguments of a trace's slices
    #[arg(long)]
    stats: bool,
}

/// The runs of a log folder; a capture of nsys-jax is not one.
fn runs_of(folder: &Path) -> Result<Vec<CaptureRun>, Fault> {
    if Capture::is_of_nsys(folder) {
        let what = "is a capture of nsys-jax, not a log folder; `profile trace` and `profile view` read it";
        return Err(Fault::input(format!("`{}`: {what}", folder.display())));
    }
    capture_runs(folder).map_err(Fault::input)
}

/// Prints the runs, the newest last.
pub(super) fn list(args: &ListArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let runs = runs_of(&args.folder)?;
    args.format.write(out, runs.as_slice())?;
    Ok(exit::FINE)
}

/// Writes a run's capture, or a trace of it.
pub(super) fn extract(args: &ExtractArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let name = args.out.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let is_capture = name.ends_with(".xplane.pb") || name.ends_with(".xplane.pb.gz");
    let format = TraceFormat::of(&args.out);
    if format.is_none() && !is_capture {
        let message = "the name does not say what to write: end it in .xplane.pb, .xplane.pb.gz, .pftrace, .json or \
                       .json.gz";
        return Err(Fault::new(exit::USAGE, format!("`{}`: {message}", args.out.display())));
    }
    let runs = runs_of(&args.folder)?;
    let files = chosen(args, &runs)?;
    if let Some(format) = format {
        let open = |file: &&CaptureFile| Ok(Capture::xspace(&file.path, &file.host, open(file)?));
        let captures = files.iter().map(open).collect::<Result<Vec<Capture>, Fault>>()?;
        return trace::write(&captures, &args.out, TraceOptions { format, with_stats: args.stats }, out);
    }
    let [file] = files[..] else {
        let message =
            format!("an XSpace holds one host: choose one with --host, or write a trace of all ({})", hosts(&files));
        return Err(Fault::new(exit::USAGE, message));
    };
    // read completely and checked first, because the output is a capture, decompressed or not
    let space = open(file)?;
    write_file(&args.out, name.ends_with(".gz"), |file| file.write_all(space.as_bytes()))?;
    writeln!(out, "{}", args.out.display())?;
    Ok(exit::FINE)
}

fn open(file: &CaptureFile) -> Result<XSpace, Fault> {
    XSpace::open(&file.path).map_err(Fault::input)
}

fn hosts(files: &[&CaptureFile]) -> String {
    files.iter().map(|file| format!("`{}`", file.host)).collect::<Vec<_>>().join(", ")
}

/// The requested captures: of one run, of all hosts or one.
fn chosen<'r>(args: &ExtractArgs, runs: &'r [CaptureRun]) -> Result<Vec<&'r CaptureFile>, Fault> {
    let folder = args.folder.display();
    let run = match &args.run {
        None => runs.last(),
        Some(wanted) => runs.iter().find(|run| run.name == *wanted),
    };
    let Some(run) = run else {
        let wanted = args.run.as_deref().unwrap_or_default();
        let last = runs.last().map(|run| run.name.as_str()).unwrap_or_default();
        let message = format!("`{folder}` has no run `{wanted}`; `profile list` names them, the last is `{last}`");
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    };
    let all: Vec<&CaptureFile> = run.files.iter().collect();
    let Some(wanted) = &args.host else { return Ok(all) };
    let found: Vec<_> = all.iter().copied().filter(|file| file.host == *wanted).collect();
    if found.is_empty() {
        let message = format!("run `{}` of `{folder}` has no host `{wanted}`; there are {}", run.name, hosts(&all));
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    Ok(found)
}
