//! Results to a writer, as a table, as JSON or as a page to look at. Reads results only, so a stored run can be drawn again.
//!
//! Every function that writes fails with what its writer says, and with nothing else.

// as said above for all of them
#![allow(clippy::missing_errors_doc)]

mod cache;
mod candidates;
mod check;
mod collectives;
mod compile;
mod coverage;
mod date;
#[cfg(feature = "pjrt")]
mod device;
mod differences;
mod document;
mod figures;
mod flame;
mod gain;
mod grid;
mod html;
mod log_folder;
mod measured;
mod mosaic;
mod plot;
mod profile_diff;
#[cfg(feature = "pjrt")]
mod prune;
mod registry;
mod resolution;
mod run_trace;
mod scan;
mod selftest;
mod summary;
mod table;
mod time;
mod timings;
mod view;

pub use check::check_lines;
pub use document::{Document, Top};
pub use figures::{format_bytes, format_ns, format_part, format_ratio};
pub use flame::write_flame_graph;
pub use gain::Gain;
pub use grid::Grid;
pub use html::{HtmlReport, write_html};
pub use mosaic::MosaicSizes;
pub use plot::{write_collectives_plot, write_spread_plot};
pub use resolution::resolution_note;
pub use run_trace::RunTrace;
pub use table::result_lines;
pub use timings::{DeviceSeconds, TimedProfile, TimingsDocument};
pub use view::{MAX_EVENTS, Server, Timeline, ViewPage, view_commands, write_view};

pub use cache::{CacheEntries, VerifiedCaches, bytes_by_kind};
pub use candidates::SpaceConfigs;
pub use compile::{CompileProfile, CompileProfiles};
pub use coverage::CoverageResult;
#[cfg(feature = "pjrt")]
pub use device::Plugins;
pub use document::name_of;
pub use measured::MeasuredDocument;
#[cfg(feature = "pjrt")]
pub use prune::PruneResult;
pub use registry::{Invocations, Listing};
pub use selftest::{Failed, SelftestResult};

use std::fmt::{self, Display};
use std::io::{self, Write};

use serde::Serialize;

use crate::printable::{printable, printable_json};

/// Writes a value as indented JSON with a line feed at the end.
pub fn write_json<T: Serialize>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    writeln!(out, "{}", printable_json(&serde_json::to_string_pretty(value)?))
}

/// Writes one line of text, whatever is in the values that it holds.
pub fn write_line(out: &mut dyn Write, line: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(out, "{}", printable(&line.to_string()))
}

/// Writes each of some lines.
fn write_lines(out: &mut dyn Write, lines: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
    lines.into_iter().try_for_each(|line| write_line(out, format_args!("{line}")))
}

/// Writes each note as a line.
fn write_notes(out: &mut dyn Write, notes: &[String]) -> io::Result<()> {
    write_lines(out, notes.iter().map(|note| format!("note: {note}")))
}
