//! `profile collectives`: bandwidth, overlap and straggler waits of communication between devices.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::HloFiles;
use crate::analysis::collectives::{Clocks, CollectiveMetrics, Collectives, collective_metrics, straggler_waits};
use crate::analysis::trace::write_file;
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::FormatArg;
use crate::report::{Top, write_collectives_plot};

use super::input::CaptureArgs;
use super::summary::CountedArgs;

words_for! {
    /// Which clocks are aligned.
    ClocksWord for Clocks {
        /// As they were recorded
        Recorded,
        /// All devices of a host together
        Host,
        /// Each device for itself, as nsys-jax does
        Device,
    }
}

#[derive(Debug, Args)]
pub(crate) struct CollectivesArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    #[command(flatten)]
    pub counted: CountedArgs,
    /// Which clocks to align, by the ends of common collectives, before computing waits [default: each host's if there
    /// are several, else none]
    #[arg(long, value_enum)]
    pub clocks: Option<ClocksWord>,
    /// Write plots of bus bandwidth, of waits for stragglers and of each device's skew (one SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Number of operations to list [default: 10 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints collectives; exit code 3 if there are none.
pub(super) fn collectives(args: &CollectivesArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let files = HloFiles::open(&args.counted.hlo).map_err(Fault::input)?;
    let captures = args.captures.read(&files)?;
    let mut found = crate::analysis::collectives::collectives(&captures, &files, args.counted.with_warm_up);
    found.notes.extend(files.notes().iter().cloned());
    let metrics = collective_metrics(&found, args.clocks.map_or_else(|| Clocks::usual(&found), Clocks::from));
    if let Some(path) = &args.plot {
        plot(path, &found, &metrics)?;
    }
    let is_empty = metrics.sizes.is_empty();
    args.format.write(out, Top { of: (&found, metrics), most: args.top })?;
    Ok(if is_empty { exit::NOTHING_MATCHED } else { exit::FINE })
}

fn plot(path: &Path, found: &Collectives<'_>, metrics: &CollectiveMetrics) -> Result<(), Fault> {
    let waits = straggler_waits(found, &metrics.alignment);
    let mut svg = Vec::new();
    if !write_collectives_plot(&mut svg, found, metrics, &waits)? {
        let message = format!(
            "nothing to plot into `{}`: no collective has a message size, or two devices whose clocks can be compared",
            path.display()
        );
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    Ok(write_file(path, false, |file| file.write_all(&svg))?)
}
