//! The commands of `profile`.

use std::io::Write;

use clap::Subcommand;

use crate::cli::fault::Fault;

use super::collectives::{self, CollectivesArgs};
use super::compile::{self, CompileArgs};
use super::diff::{self, ProfileDiffArgs};
use super::flamegraph::{self, FlamegraphArgs};
use super::log_folder::{self, ExtractArgs, ListArgs};
use super::mosaic::{self, MosaicArgs, MosaicSizeArgs};
use super::summary::{self, SummaryArgs};
use super::timings::{self, TimingsArgs};
use super::trace::{self, TraceArgs};
use super::view::{self, ViewArgs};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ProfileCommand {
    /// Show where the time went: modules, operations, source lines, labels, idle time (docs/analysis.md)
    Summary(SummaryArgs),
    /// Open a profile as a page: summary, timeline, flame graphs (docs/view.md)
    View(ViewArgs),
    /// Draw the same time as a flame graph by source line or op_name (docs/analysis.md)
    Flamegraph(FlamegraphArgs),
    /// List seconds by event name, and mean and deviation by function id over several profiles
    Timings(TimingsArgs),
    /// Show bandwidth, hidden part and straggler wait of collectives (docs/collectives.md)
    Collectives(CollectivesArgs),
    /// Show compilation time by phase, without counting parallel worker threads twice (docs/compile.md)
    Compile(CompileArgs),
    /// Show what changed between two profiles, and whether the change is significant (docs/analysis.md)
    Diff(ProfileDiffArgs),
    /// Write a capture as a trace for Perfetto's and Chrome's viewers (docs/traces.md)
    Trace(TraceArgs),
    /// Draw the on-device profile of a Mosaic GPU kernel as a trace (docs/mosaic.md)
    Mosaic(MosaicArgs),
    /// Print the size of the on-device profiler's buffers (docs/mosaic.md)
    MosaicSize(MosaicSizeArgs),
    /// List the runs of a log folder (docs/traces.md)
    List(ListArgs),
    /// Extract a run from a log folder: its capture, or a trace of it (docs/traces.md)
    Extract(ExtractArgs),
}

/// Runs a command of `profile`.
pub(in crate::cli) fn run(command: &ProfileCommand, out: &mut dyn Write) -> Result<u8, Fault> {
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
