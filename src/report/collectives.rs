//! Bandwidth, overlap and straggler waits of communication between devices.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::collectives::{
    Alignment, Bandwidth, Clocks, CollectiveMetrics, Collectives, Device, Figures, OperationRow, SizeRow,
};
use crate::counted::counted;

use super::figures::signed_ns;
use super::grid::{cells, dash};
use super::{Document, Grid, Top, format_bytes, format_ns, format_part, line, write_notes};

#[derive(Serialize)]
struct CollectivesDocument<'a> {
    schema: u32,
    devices: Vec<DeviceDocument<'a>>,
    alignment: AlignmentDocument,
    sizes: Vec<SizeRow>,
    operations: Vec<OperationRow>,
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

impl<'f> Document for Top<(&'f Collectives<'_>, CollectiveMetrics)> {
    fn into_json(self) -> impl Serialize {
        let (found, mut metrics) = self.of;
        metrics.operations.truncate(self.most.unwrap_or(usize::MAX));
        let alignment = &metrics.alignment;
        let ns = |ps: i64| ps as f64 / 1e3;
        let device = |(number, device): (usize, &'f Device)| DeviceDocument {
            host: &device.host,
            device: device.ordinal,
            skew_ns: alignment.skews_ps.get(number).copied().map(ns),
            correction_ns: alignment.corrections_ps.get(number).copied().map_or(0.0, ns),
        };
        CollectivesDocument {
            schema: 1,
            devices: found.devices.iter().enumerate().map(device).collect(),
            alignment: AlignmentDocument {
                clocks: alignment.clocks,
                collectives: alignment.collectives,
                sampled: alignment.sampled,
            },
            sizes: metrics.sizes,
            operations: metrics.operations,
            warm_up_executions: found.skipped,
            notes: &found.notes,
        }
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let ((found, metrics), top) = (self.of, self.most.unwrap_or(10));
        if metrics.sizes.is_empty() {
            writeln!(out, "no collective was found")?;
        } else {
            write_sizes(&metrics.sizes, out)?;
            writeln!(out)?;
            write_operations(&metrics.operations, top, out)?;
            writeln!(
                out,
                "\nfastest: shortest duration among an instance's devices, which gives its bandwidth; ± standard error"
            )?;
            writeln!(out, "wait: last end − first start − shortest duration of an instance")?;
            if !found.devices.is_empty() {
                line!(out, "{}", clocks_line(found, &metrics.alignment))?;
            }
        }
        if found.skipped > 0 {
            let executions = counted(found.skipped, "first execution");
            writeln!(out, "left out: {executions} (--with-warm-up counts them)")?;
        }
        write_notes(out, &found.notes)
    }
}

fn write_sizes(sizes: &[SizeRow], out: &mut dyn Write) -> io::Result<()> {
    let mut grid = Grid::new(&[&["collective", ">group", ">message"][..], &FIGURES].concat());
    for row in sizes {
        let (group, message) = (dash(row.group_size, |n| n.to_string()), dash(row.message_bytes, format_bytes));
        grid.row(cells![row.kind, group, message].into_iter().chain(figures(&row.figures)));
    }
    grid.write(out)
}

fn write_operations(operations: &[OperationRow], top: usize, out: &mut dyn Write) -> io::Result<()> {
    let first = ["operation", "module", ">message", ">total", ">instances"];
    let mut grid = Grid::new(&[&first[..], &[">bus GB/s", "", ">hidden", ">mean wait"]].concat());
    for row in operations.iter().take(top) {
        let [instances, _, _, bus, error, hidden, wait, _] = figures(&row.figures);
        let (message, total) = (dash(row.message_bytes, format_bytes), format_ns(row.figures.total_ns));
        grid.row(cells![row.name, row.module, message, total, instances, bus, error, hidden, wait]);
        if let Some(sum) = row.figures.hidden_by_sum {
            let sum = format_part(sum);
            grid.line(&format!("computations overlap each other: their overlaps added up would hide {sum}"));
        }
    }
    grid.write(out)?;
    match operations.len().saturating_sub(top) {
        0 => Ok(()),
        more => writeln!(out, "and {} (--top)", counted(more, "more operation")),
    }
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

/// Returns the cells of instances, shortest time, bandwidths with the error of the second, hidden part, mean and
/// longest wait.
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

fn clocks_line(found: &Collectives<'_>, alignment: &Alignment) -> String {
    let place = format!("{} on {}", counted(found.devices.len(), "device"), counted(found.hosts(), "host"));
    let how = match (alignment.clocks, alignment.skews_ps.is_empty()) {
        (Clocks::Recorded, _) => "clocks as recorded",
        (_, true) => "no collective spans all devices: clocks cannot be aligned",
        (Clocks::Host, _) => "clocks aligned by host",
        (Clocks::Device, _) => "clocks aligned by device",
    };
    let skews = alignment.skews_ps.iter().min().zip(alignment.skews_ps.iter().max());
    let skew = skews.map_or_else(String::new, |(low, high)| {
        let signed = |ps: i64| signed_ns(ps as f64 / 1e3, "");
        let by = counted(alignment.sampled, "collective");
        let by = match alignment.collectives {
            all if all == alignment.sampled => by,
            all => format!("{by} of {all}"),
        };
        format!("; median skew of a device's ends, over {by}: {} to {}", signed(*low), signed(*high))
    });
    format!("{place}, {how}{skew}")
}
