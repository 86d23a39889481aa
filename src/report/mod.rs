//! Results to a writer, as a table, as JSON or as a page. Reads results only, so a stored run can be drawn again.
//!
//! Every writing function returns only its writer's errors.

// as said above for all of them
#![allow(clippy::missing_errors_doc)]

mod bisect;
mod cache;
mod candidates;
mod changes;
mod check;
mod collectives;
mod compare;
mod compile;
mod coverage;
mod date;
mod device;
mod differences;
mod document;
mod figures;
mod flame;
mod gain;
mod grid;
mod html;
mod lines;
mod log_folder;
mod log_scale;
mod measured;
mod memory;
mod mosaic;
mod naming;
mod options;
mod peaks;
mod plot;
mod processes;
mod profile_diff;
mod prove;
mod prune;
mod registry;
mod resolution;
mod roofline;
mod run_trace;
mod scan;
mod selftest;
mod summary;
mod table;
mod targets;
mod time;
mod timings;
mod upgrade;
mod view;

pub use bisect::bisect_line;
pub use check::check_lines;
pub use document::{Document, Top};
pub use figures::{format_bytes, format_ns, format_part, format_ratio};
pub use flame::write_flame_graph;
pub use gain::ExpectedGain;
pub use grid::Grid;
pub use html::{HtmlReport, StepReport, UpgradeReport, write_html, write_step_html, write_upgrade_html};
pub use mosaic::MosaicSizes;
pub use plot::{write_collectives_plot, write_spread_plot};
pub use resolution::resolution_note;
pub use run_trace::RunTrace;
pub use table::result_lines;
pub use upgrade::upgrade_lines;
pub use view::{AfterPage, MAX_EVENTS, Timeline, ViewPage, view_commands, write_view};

pub use cache::{CacheEntries, VerifiedCaches, bytes_by_kind, class_of_options};
pub use candidates::SpaceConfigs;
pub use compare::ComparedPrograms;
pub use compile::{CompileProfile, CompileProfiles};
pub use coverage::CoverageResult;
pub use device::{DevicesOf, ShownDevices};
pub use document::name_of;
pub use lines::{write_json, write_line};
pub use measured::MeasuredDocument;
pub use options::CompilerOptions;
pub use peaks::PeaksOfDevice;
pub use prove::ProvenStep;
pub use prune::PruneResult;
pub use registry::{AddedRecord, Invocations, RegistryListing};
pub use selftest::{FailedProgram, SelftestResult};

use lines::{line, write_lines, write_notes};
