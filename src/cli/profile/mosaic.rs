//! `profile mosaic` and `profile mosaic-size`: on-device profiles of Mosaic GPU kernels.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::analysis::mosaic::{Clock, Dump, Extent, ProfilerSpec, Scope, draw, read_names, read_npy};
use crate::analysis::trace::write_file;
use crate::report::MosaicSizes;

use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{FormatArg, number};

words_for! {
    /// What one trace covers.
    ScopeWord for Scope {
        /// 128 threads
        Warpgroup,
        /// 32 threads
        Warp,
    }
}

/// How a kernel was launched.
#[derive(Debug, Clone, Copy, Args)]
struct LaunchArgs {
    /// Blocks of the launch, up to three numbers
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    grid: Extent,
    /// Threads of a block, up to three numbers
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    block: Extent,
    /// What one trace covers: the spec's `trace_scope`
    #[arg(long, value_enum, default_value_t = ScopeWord::Warpgroup)]
    scope: ScopeWord,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct MosaicArgs {
    /// The profiler's buffer, as `numpy.save` writes it (uint32)
    #[arg(value_name = "DUMP.npy")]
    dump: PathBuf,
    /// The spec's `interned_names` as JSON
    #[arg(long, value_name = "FILE")]
    names: PathBuf,
    #[command(flatten)]
    launch: LaunchArgs,
    /// Clock of the SMs, which converts cycles to time [default: a cycle is drawn as a nanosecond, as in JAX]
    #[arg(long, value_name = "MHZ", value_parser = megahertz)]
    clock: Option<f64>,
    /// File to write the trace to: `.json`, or `.json.gz` [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct MosaicSizeArgs {
    #[command(flatten)]
    launch: LaunchArgs,
    /// Words per trace: the spec's `entries_per_warpgroup`
    #[arg(long, value_name = "N", conflicts_with = "ranges", required_unless_present = "ranges")]
    entries: Option<u64>,
    /// Ranges that each trace should hold: how often it passes a `record`
    #[arg(long, value_name = "N")]
    ranges: Option<u64>,
    #[command(flatten)]
    format: FormatArg,
}

fn extent(text: &str) -> Result<Extent, String> {
    let wrong = || "expected up to three whole numbers above zero, such as 132,1,1".to_owned();
    let mut extent = [1; 3];
    let sizes: Vec<&str> = text.split(',').collect();
    if sizes.len() > extent.len() {
        return Err(wrong());
    }
    for (slot, size) in extent.iter_mut().zip(sizes) {
        *slot = size.trim().parse().ok().filter(|size| *size > 0).ok_or_else(wrong)?;
    }
    Ok(Extent(extent))
}

fn megahertz(text: &str) -> Result<f64, String> {
    number(text, 1.0..=100_000.0, "megahertz, such as 1755")
}

/// Draws a dump; exit code 3 if it has no event.
pub(super) fn mosaic(args: &MosaicArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let names = read_names(&args.names).map_err(Fault::input)?;
    let words = read_npy(&args.dump).map_err(Fault::input)?;
    let LaunchArgs { grid, block, scope } = args.launch;
    let in_dump = |error| Fault::input(format!("`{}`: {error}", args.dump.display()));
    let dump = Dump::new(&words, grid, block, scope.into()).map_err(in_dump)?;
    let clock = args.clock.map_or(Clock::Unknown, Clock::Megahertz);
    let drawn = match &args.out {
        None => draw(&dump, &names, clock, out)?,
        Some(path) => {
            let is_gzip = path.extension().is_some_and(|extension| extension == "gz");
            let drawn = write_file(path, is_gzip, |file| draw(&dump, &names, clock, file))?;
            writeln!(out, "{}", path.display())?;
            drawn
        }
    };
    tracing::info!(
        "{} events of {} traces ({} empty), {} cycles of overhead",
        drawn.events,
        drawn.traces,
        drawn.empty,
        dump.overhead_cycles()
    );
    for note in drawn.notes(clock) {
        tracing::warn!("{note}");
    }
    Ok(if drawn.events == 0 { exit::NOTHING_MATCHED } else { exit::FINE })
}

/// Prints how large the buffers of a launch are.
pub(super) fn size(args: &MosaicSizeArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let LaunchArgs { grid, block, scope } = args.launch;
    let entries = args.entries.or(args.ranges.map(ProfilerSpec::entries_for)).unwrap_or(0);
    let spec = ProfilerSpec { entries, scope: scope.into() };
    let usage = |error| Fault::new(exit::USAGE, error);
    let buffer_words = spec.buffer_words(grid, block).map_err(usage)?;
    let sizes = MosaicSizes {
        scope: spec.scope.name(),
        traces: spec.traces(grid, block).map_err(usage)?,
        entries,
        ranges: spec.ranges(),
        buffer_words,
        buffer_bytes: buffer_words.saturating_mul(4),
        shared_bytes: spec.shared_bytes(block).map_err(usage)?,
    };
    args.format.write(out, sizes)?;
    Ok(exit::FINE)
}
