//! `profile`: what a capture says.

mod collectives;
mod compile;
mod diff;
mod flamegraph;
mod input;
pub(super) mod log_folder;
pub(super) mod mosaic;
mod serve;
mod summary;
pub(super) mod timings;
pub(super) mod trace;
mod view;

pub(super) use collectives::CollectivesArgs;
pub(super) use compile::CompileArgs;
pub(super) use diff::ProfileDiffArgs;

use std::io::Write;
use std::path::Path;

use crate::remedy::remedy;
use crate::whole_file::write_whole;

use super::args::ProfileCommand;
use super::fault::Fault;

pub(super) use flamegraph::FlamegraphArgs;
pub(super) use input::read_any;
pub(super) use summary::SummaryArgs;
pub(super) use view::ViewArgs;

/// Runs a command of `profile`.
pub(super) fn run(command: &ProfileCommand, out: &mut dyn Write) -> Result<u8, Fault> {
    match command {
        ProfileCommand::Diff(args) => diff::diff(args, out),
        ProfileCommand::Compile(args) => compile::compile(args, out),
        ProfileCommand::Collectives(args) => collectives::collectives(args, out),
        ProfileCommand::Flamegraph(args) => flamegraph::flamegraph(args, out),
        ProfileCommand::Summary(args) => summary::summary(args, out),
        ProfileCommand::View(args) => view::view(args, out),
        ProfileCommand::Timings(args) => timings::timings(args, out),
        ProfileCommand::Trace(args) => trace::run(args, out),
        ProfileCommand::Mosaic(args) => mosaic::mosaic(args, out),
        ProfileCommand::MosaicSize(args) => mosaic::size(args, out),
        ProfileCommand::List(args) => log_folder::list(args, out),
        ProfileCommand::Extract(args) => log_folder::extract(args, out),
    }
}

/// Writes a picture to the file that was named.
fn write_picture(path: &Path, svg: &[u8]) -> Result<(), Fault> {
    write_whole(path, |file| file.write_all(svg))
        .map_err(|error| Fault::input(format!("`{}`: cannot be written: {error}{}", path.display(), remedy(&error))))
}
