//! `profile trace`: a capture as a timeline for other programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::{TraceFormat, TraceOptions, write_trace_file};
use crate::analysis::{Capture, HloFiles};

use super::input::read_captures;
use crate::cli::exit;
use crate::cli::fault::Fault;

words_for! {
    /// The format of a trace.
    FormatWord for TraceFormat {
        /// Perfetto's protobuf, for <https://ui.perfetto.dev> and the trace processor
        Perfetto,
        /// Chrome's JSON; compressed if the file's name ends in `.gz`
        Chrome,
    }
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TraceArgs {
    /// An XSpace (`.xplane.pb`), plain or gzipped, a log folder of TensorBoard (its newest run, all hosts), `-`, or a
    /// capture of nsys-jax
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File to write: `.pftrace` or `.perfetto-trace`, `.json` or `.json.gz`
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Format to write, whatever the file's name
    #[arg(long, value_enum)]
    format: Option<FormatWord>,
    /// Write the stats of events as arguments of their slices
    #[arg(long)]
    stats: bool,
}

/// Writes a trace and prints where it is.
pub(super) fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let format = match args.format {
        Some(format) => format.into(),
        None => TraceFormat::of(&args.out).ok_or_else(|| unknown_format(&args.out, ", or give --format"))?,
    };
    let captures = read_captures(&args.files, &HloFiles::default())?;
    write(&captures, &args.out, TraceOptions { format, with_stats: args.stats }, out)
}

/// The fault of a file name that determines no format.
pub(in crate::cli) fn unknown_format(path: &Path, or: &str) -> Fault {
    let message = "the name does not give the format: end it in .pftrace, .json or .json.gz";
    Fault::new(exit::USAGE, format!("`{}`: {message}{or}", path.display()))
}

/// Writes captures as one trace; exit code 3 if they have no event.
pub(super) fn write(
    captures: &[Capture],
    path: &Path,
    options: TraceOptions,
    out: &mut dyn Write,
) -> Result<u8, Fault> {
    let traced = write_trace_file(captures, options, path)?;
    writeln!(out, "{}", path.display())?;
    tracing::info!("{} slices of {} threads in {} processes", traced.slices, traced.threads, traced.processes);
    for finding in captures.iter().flat_map(Capture::import_findings) {
        tracing::warn!("{finding}");
    }
    for note in traced.notes() {
        tracing::warn!("{note}");
    }
    Ok(if traced.slices == 0 { exit::NOTHING_MATCHED } else { exit::FINE })
}
