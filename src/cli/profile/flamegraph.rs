//! `profile flamegraph`: the time by stack, as an SVG.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::analysis::{HloFiles, StacksBy, stacks};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::say::say;
use crate::report::{format_ns, write_flame_graph};

use super::input::read_any;
use super::picture::write_picture;
use super::summary::ModulesArgs;

#[derive(Debug, Args)]
pub(crate) struct FlamegraphArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// What the frames are
    #[arg(long, value_enum, default_value_t = ByArg::Source)]
    pub by: ByArg,
    /// The SVG to write; one that is there is replaced. `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub modules: ModulesArgs,
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
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    let captures = read_any(&args.files, &files)?;
    let (by, what) = match args.by {
        ByArg::Source => (StacksBy::Source, "source line"),
        ByArg::OpName => (StacksBy::OpName, "op_name"),
    };
    let found = stacks(&captures, &files, by, args.modules.counting());
    for line in found.notes.iter().cloned().chain(found.findings.iter().map(ToString::to_string)) {
        say(&line);
    }
    let total: f64 = found.time_ns.values().sum();
    if total < 1.0 {
        return Err(Fault::new(exit::NOTHING_MATCHED, "no module was executed: there is no flame graph to draw"));
    }
    let title = format!("Device time by {what}");
    let names: Vec<String> = captures.iter().map(|capture| capture.path().display().to_string()).collect();
    let subtitle = format!("{}, {}", names.join(", "), format_ns(total));
    let mut svg = Vec::new();
    write_flame_graph(&mut svg, &title, &subtitle, &found.time_ns, by == StacksBy::OpName)?;
    if args.output == Path::new("-") {
        out.write_all(&svg)?;
        return Ok(exit::FINE);
    }
    write_picture(&args.output, &svg)?;
    Ok(exit::FINE)
}
