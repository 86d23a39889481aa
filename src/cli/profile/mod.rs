//! `profile`: what a capture says.

pub(super) mod log_folder;
pub(super) mod mosaic;
mod timings;
pub(super) mod trace;

use std::io::Write;
use std::path::Path;

use crate::profile::{Capture, XSpace, captures};

use super::args::ProfileCommand;
use super::fault::Fault;

/// Runs a command of `profile`.
pub(super) fn run(command: &ProfileCommand, out: &mut dyn Write) -> Result<u8, Fault> {
    match command {
        ProfileCommand::Timings(args) => timings::timings(args, out),
        ProfileCommand::Trace(args) => trace::run(args, out),
        ProfileCommand::Mosaic(args) => mosaic::mosaic(args, out),
        ProfileCommand::MosaicSize(args) => mosaic::size(args, out),
        ProfileCommand::List(args) => log_folder::list(args, out),
        ProfileCommand::Extract(args) => log_folder::extract(args, out),
    }
}

/// The captures of a file, of standard input (`-`), or of a log folder's newest run.
fn read(file: &Path) -> Result<Vec<Capture>, Fault> {
    if file == Path::new("-") {
        let space = XSpace::from_reader(std::io::stdin().lock(), "standard input").map_err(Fault::input)?;
        return Ok(vec![Capture { path: file.to_owned(), host: String::new(), space }]);
    }
    captures(file).map_err(Fault::input)
}
