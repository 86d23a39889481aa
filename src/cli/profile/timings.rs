//! `profile timings`: seconds by name, as ejkernel's profiler counts them.

use std::io::Write;

use clap::Args;
use regex::bytes::Regex;

use crate::analysis::ProfileTimings;
use crate::profile::{Profiler, Semantics};

use super::input::CaptureArgs;
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{FormatArg, number};
use crate::cli::say::say;

/// Programs whose numbers can be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CompatWord {
    /// ejkernel 0.0.80
    Ejkernel,
}

impl From<CompatWord> for Semantics {
    fn from(CompatWord::Ejkernel: CompatWord) -> Self {
        Self::Ejkernel
    }
}

#[derive(Debug, Args)]
pub(crate) struct TimingsArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    /// Part of a plane's name, in any case [default: `/device:` if there is one, else `/host:CPU`]
    #[arg(long, value_name = "NAME")]
    pub plane: Option<String>,
    /// Only names with this prefix; empty for all
    #[arg(long, value_name = "TEXT", default_value = "jit_")]
    pub prefix: String,
    /// Only time of operations whose names match; with --compat ejkernel, of inner events whose names match
    #[arg(long, value_name = "REGEX")]
    pub regex: Option<String>,
    /// Leave out shorter samples
    #[arg(long, value_name = "NS", default_value_t = 1000.0, value_parser = duration_ns)]
    pub min_duration_ns: f64,
    /// Maximum number of samples per plane, or `none` [default: none; with --compat ejkernel 10000 events]
    #[arg(long, value_name = "N", value_parser = cap)]
    pub max_events: Option<Cap>,
    /// Compute what this program's profiler would, with its errors; never decide by it
    #[arg(long, value_enum)]
    pub compat: Option<CompatWord>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// A maximum, or no bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cap(pub Option<usize>);

fn cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap(None)),
        _ => text.parse().map(|most| Cap(Some(most))).map_err(|_| "expected a whole number or `none`".to_owned()),
    }
}

/// A duration: finite and not below zero.
fn duration_ns(text: &str) -> Result<f64, String> {
    number(text, 0.0..f64::INFINITY, "nanoseconds, zero or more")
}

fn profiler(args: &TimingsArgs) -> Result<Profiler, Fault> {
    let mut profiler = Profiler::new(args.compat.map_or(Semantics::PerExecution, Semantics::from));
    profiler.prefix_filter.clone_from(&args.prefix);
    profiler.min_duration_ns = args.min_duration_ns;
    if let Some(cap) = args.max_events {
        profiler.max_events_per_profile = cap.0;
    }
    let regex = args.regex.as_deref().map(Regex::new).transpose();
    profiler.event_filter_regex = regex.map_err(|error| Fault::new(exit::USAGE, format!("--regex: {error}")))?;
    Ok(profiler)
}

/// Prints seconds by name; exit code 3 if there is no sample.
pub(super) fn timings(args: &TimingsArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let found = ProfileTimings::of(&args.captures.files, &profiler(args)?, args.plane.as_deref())?;
    found.run_notes.iter().for_each(|note| say(note));
    let is_empty = found.timings.is_empty();
    args.format.write(out, found)?;
    Ok(if is_empty { exit::NOTHING_MATCHED } else { exit::FINE })
}
