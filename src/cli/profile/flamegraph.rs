//! `profile flamegraph`: the time by stack, as an SVG.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::analysis::{HloFiles, StacksBy, stacks};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::tune::say;
use crate::report::{format_ns, write_flame_graph};

use super::read_all;
use super::summary::CountedArgs;

#[derive(Debug, Args)]
pub(crate) struct FlamegraphArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), or `-`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// What the frames are
    #[arg(long, value_enum, default_value_t = ByArg::Source)]
    pub by: ByArg,
    /// The SVG to write; one that is there is replaced. `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub counted: CountedArgs,
}

/// What the frames of a flame graph are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// The calls of the program that was traced, and the `op_name` below them
    Source,
    /// The scopes of the `op_name`
    #[value(name = "op_name", alias = "op-name")]
    OpName,
}

pub(super) fn flamegraph(args: &FlamegraphArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let files = HloFiles::open(&args.counted.hlo).map_err(Fault::input)?;
    let captures = read_all(&args.files)?;
    let (by, what) = match args.by {
        ByArg::Source => (StacksBy::Source, "source line"),
        ByArg::OpName => (StacksBy::OpName, "op_name"),
    };
    let found = stacks(&captures, &files, by, args.counted.with_warm_up);
    for line in found.notes.iter().cloned().chain(found.findings.iter().map(ToString::to_string)) {
        say(&line);
    }
    let total: f64 = found.time_ns.values().sum();
    if total < 1.0 {
        return Err(Fault::new(exit::NOTHING_MATCHED, "no module was executed: there is no flame graph to draw"));
    }
    let title = format!("Device time by {what}");
    let names: Vec<String> = captures.iter().map(|capture| capture.path.display().to_string()).collect();
    let subtitle = format!("{}, {}", names.join(", "), format_ns(total));
    let mut svg = Vec::new();
    write_flame_graph(&mut svg, &title, &subtitle, &found.time_ns, by == StacksBy::OpName)?;
    if args.output == Path::new("-") {
        out.write_all(&svg)?;
        return Ok(exit::FINE);
    }
    write_whole(&args.output, &svg)
        .map_err(|error| Fault::input(format!("`{}`: cannot be written: {error}", args.output.display())))?;
    Ok(exit::FINE)
}

/// Writes a file under a temporary name, syncs it, and gives it its name; missing folders are made.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let everyone = Permissions::from_mode(0o666);
    let mut temporary = tempfile::Builder::new().prefix(".tmp-").permissions(everyone).tempfile_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map(drop).map_err(|error| error.error)
}
