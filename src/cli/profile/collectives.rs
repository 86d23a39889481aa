//! `profile collectives`: how fast devices talk to each other, what hides it, and who waits.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::analysis::HloFiles;
use crate::analysis::collectives::{
    Bandwidth, Clocks, CollectiveMetrics, Collectives, Figures, SizeRow, collective_metrics, straggler_waits,
};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{Format, FormatArg};
use crate::report::{Grid, format_bytes, format_ns, format_part, write_collectives_plot, write_json, write_line};

use super::input::read_any;
use super::picture::write_picture;
use super::summary::CountedArgs;

#[derive(Debug, Args)]
pub(crate) struct CollectivesArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub counted: CountedArgs,
    /// Whose clocks are aligned by the ends of common collectives before waits are taken
    /// [default: each host's where there are several, else none]
    #[arg(long, value_enum)]
    pub clocks: Option<ClocksArg>,
    /// Write plots of bus bandwidth, of waits for stragglers and of each device's skew (one SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Operations listed [default: 10 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClocksArg {
    /// As they were recorded
    Recorded,
    /// All devices of a host together
    Host,
    /// Each device for itself, as nsys-jax does
    Device,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    devices: Vec<DeviceDocument<'a>>,
    alignment: AlignmentDocument,
    sizes: &'a [SizeRow],
    operations: &'a [crate::analysis::collectives::OperationRow],
    warm_up_executions: u64,
    notes: &'a [String],
}

#[derive(Serialize)]
struct DeviceDocument<'a> {
    host: &'a str,
    device: i64,
    skew_ns: Option<f64>,
    correction_ns: f64,
}

#[derive(Serialize)]
struct AlignmentDocument {
    clocks: Clocks,
    collectives: u64,
    sampled: u64,
}

/// Prints collectives; none at all is exit code 3.
pub(super) fn collectives(args: &CollectivesArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let files = HloFiles::open(&args.counted.hlo).map_err(Fault::input)?;
    let captures = read_any(&args.files, &files)?;
    let mut found = crate::analysis::collectives::collectives(&captures, &files, args.counted.with_warm_up);
    found.notes.extend(files.notes().iter().cloned());
    let hosts: std::collections::BTreeSet<&str> = found.devices.iter().map(|device| device.host.as_str()).collect();
    let clocks = match args.clocks {
        Some(ClocksArg::Recorded) => Clocks::Recorded,
        Some(ClocksArg::Host) => Clocks::Host,
        Some(ClocksArg::Device) => Clocks::Device,
        None if hosts.len() > 1 => Clocks::Host,
        None => Clocks::Recorded,
    };
    let mut metrics = collective_metrics(&found, clocks);
    if let Some(path) = &args.plot {
        plot(path, &found, &metrics)?;
    }
    match args.format.format {
        Format::Json => {
            metrics.operations.truncate(args.top.unwrap_or(usize::MAX));
            write_json(out, &document(&found, &metrics))?;
        }
        Format::Table => write_table(out, &found, &metrics, args.top.unwrap_or(10))?,
    }
    Ok(if metrics.sizes.is_empty() { exit::NOTHING_MATCHED } else { exit::FINE })
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
    write_picture(path, &svg)
}

fn document<'a>(found: &'a Collectives<'_>, metrics: &'a CollectiveMetrics) -> Document<'a> {
    let alignment = &metrics.alignment;
    let ns = |ps: i64| ps as f64 / 1e3;
    let device = |(number, device): (usize, &'a crate::analysis::collectives::Device)| DeviceDocument {
        host: &device.host,
        device: device.ordinal,
        skew_ns: alignment.skews_ps.get(number).copied().map(ns),
        correction_ns: alignment.corrections_ps.get(number).copied().map_or(0.0, ns),
    };
    Document {
        schema: 1,
        devices: found.devices.iter().enumerate().map(device).collect(),
        alignment: AlignmentDocument {
            clocks: alignment.clocks,
            collectives: alignment.collectives,
            sampled: alignment.sampled,
        },
        sizes: &metrics.sizes,
        operations: &metrics.operations,
        warm_up_executions: found.left_out,
        notes: &found.notes,
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "—".to_owned(), text)
}

fn figure(value: f64) -> String {
    match value {
        _ if value == 0.0 || value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ if value >= 0.09995 => format!("{value:.3}"),
        _ if value >= 0.009995 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

fn mean(bandwidth: Bandwidth) -> String {
    figure(bandwidth.mean)
}

/// Instances, shortest time, bandwidths with the error of the second, hidden part, mean and longest wait.
fn figures(of: &Figures) -> [String; 8] {
    let error =
        of.bus_gb_per_s.and_then(|bus| bus.error).map_or_else(String::new, |error| format!("± {}", figure(error)));
    [
        of.instances.to_string(),
        format_ns(of.fastest_ns),
        dash(of.algorithm_gb_per_s, mean),
        dash(of.bus_gb_per_s, mean),
        error,
        format_part(of.hidden),
        dash(of.wait, |wait| format_ns(wait.mean_ns)),
        dash(of.wait, |wait| format_ns(wait.longest_ns)),
    ]
}

const FIGURES: [&str; 8] =
    [">instances", ">fastest", ">alg. GB/s", ">bus GB/s", "", ">hidden", ">mean wait", ">longest"];

fn write_table(
    out: &mut dyn Write,
    found: &Collectives<'_>,
    metrics: &CollectiveMetrics,
    top: usize,
) -> io::Result<()> {
    if metrics.sizes.is_empty() {
        writeln!(out, "no collective was found")?;
    } else {
        let mut grid = Grid::new(&[&["collective", ">group", ">message"][..], &FIGURES].concat());
        for row in &metrics.sizes {
            let head =
                [row.kind.to_string(), dash(row.group_size, |n| n.to_string()), dash(row.message_bytes, format_bytes)];
            grid.row(head.into_iter().chain(figures(&row.figures)));
        }
        grid.write(out)?;
        writeln!(out)?;
        let mut grid = Grid::new(&[
            "operation",
            "module",
            ">message",
            ">total",
            ">instances",
            ">bus GB/s",
            "",
            ">hidden",
            ">mean wait",
        ]);
        for row in metrics.operations.iter().take(top) {
            let [instances, _, _, bus, error, hidden, wait, _] = figures(&row.figures);
            let total = format_ns(row.figures.total_ns);
            let message = dash(row.message_bytes, format_bytes);
            grid.row([row.name.clone(), row.module.clone(), message, total, instances, bus, error, hidden, wait]);
            if let Some(sum) = row.figures.hidden_by_sum {
                let sum = format_part(sum);
                grid.line(&format!("computations overlap each other: their overlaps added up would hide {sum}"));
            }
        }
        grid.write(out)?;
        if let Some(more) = metrics.operations.len().checked_sub(top).filter(|more| *more > 0) {
            writeln!(out, "and {} (--top)", count(more, "more operation"))?;
        }
        writeln!(
            out,
            "\nfastest: shortest duration among an instance's devices, from which its bandwidth is taken; ± standard error"
        )?;
        writeln!(out, "wait: last end − first start − shortest duration of an instance")?;
        write_line(out, format_args!("{}", clocks_line(found, metrics)))?;
    }
    if found.left_out > 0 {
        let executions = count(usize::try_from(found.left_out).unwrap_or(usize::MAX), "first execution");
        writeln!(out, "left out: {executions} (--with-warm-up counts them)")?;
    }
    for note in &found.notes {
        write_line(out, format_args!("note: {note}"))?;
    }
    Ok(())
}

fn clocks_line(found: &Collectives<'_>, metrics: &CollectiveMetrics) -> String {
    let alignment = &metrics.alignment;
    let hosts: std::collections::BTreeSet<&str> = found.devices.iter().map(|device| device.host.as_str()).collect();
    let place = format!("{} on {}", count(found.devices.len(), "device"), count(hosts.len(), "host"));
    let how = match (alignment.clocks, alignment.skews_ps.is_empty()) {
        (Clocks::Recorded, _) => "clocks as recorded",
        (_, true) => "no collective spans all devices: clocks cannot be aligned",
        (Clocks::Host, _) => "clocks aligned by host",
        (Clocks::Device, _) => "clocks aligned by device",
    };
    let skews = alignment.skews_ps.iter().min().zip(alignment.skews_ps.iter().max());
    let skew = skews.map_or_else(String::new, |(low, high)| {
        let sign = |ps: i64| format!("{}{}", if ps < 0 { "−" } else { "" }, format_ns(ps.unsigned_abs() as f64 / 1e3));
        let by = count(usize::try_from(alignment.sampled).unwrap_or(usize::MAX), "collective");
        let by = match alignment.collectives {
            all if all == alignment.sampled => by,
            all => format!("{by} of {all}"),
        };
        format!("; median skew of a device's ends, over {by}: {} to {}", sign(*low), sign(*high))
    });
    format!("{place}, {how}{skew}")
}
