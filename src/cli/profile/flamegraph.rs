//! `profile flamegraph`: the time by stack, as an SVG.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{HloFiles, StacksBy, stacks};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::say::say;
use crate::report::{format_ns, write_flame_graph};

use super::input::CaptureArgs;
use super::summary::ModulesArgs;

words_for! {
    /// What the frames are.
    ByWord for StacksBy {
        /// The calls of the program that was traced, and the `op_name` below them
        Source,
        /// The scopes of the `op_name`
        #[value(name = "op_name")]
        OpName,
    }
}

#[derive(Debug, Args)]
pub(crate) struct FlamegraphArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    /// What the frames are
    #[arg(long, value_enum, default_value_t = ByWord::Source)]
    pub by: ByWord,
    /// The SVG to write; replaces an existing file. `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub modules: ModulesArgs,
}

pub(super) fn flamegraph(args: &FlamegraphArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    let captures = args.captures.read(&files)?;
    let by = StacksBy::from(args.by);
    let found = stacks(&captures, &files, by, args.modules.counting());
    for line in found.notes.iter().cloned().chain(found.findings.iter().map(ToString::to_string)) {
        say(&line);
    }
    let total: f64 = found.time_ns.values().sum();
    if total < 1.0 {
        return Err(Fault::new(exit::NOTHING_MATCHED, "no module was executed: there is no flame graph to draw"));
    }
    let title = format!("Device time by {}", if by == StacksBy::Source { "source line" } else { "op_name" });
    let names: Vec<String> = captures.iter().map(|capture| capture.path().display().to_string()).collect();
    let subtitle = format!("{}, {}", names.join(", "), format_ns(total));
    let mut svg = Vec::new();
    write_flame_graph(&mut svg, &title, &subtitle, &found.time_ns, by == StacksBy::OpName)?;
    if args.output == Path::new("-") {
        out.write_all(&svg)?;
        return Ok(exit::FINE);
    }
    write_file(&args.output, false, |file| file.write_all(&svg))?;
    Ok(exit::FINE)
}
