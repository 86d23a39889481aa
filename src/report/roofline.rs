//! The work of operations and calls per time, and their share of the device's roof.

use std::io::{self, Write};

use crate::analysis::{OperationSummary, Summary, Work};
use crate::peaks::Peaks;
use crate::tune::OperationResult;

use super::figures::{format_bytes, format_part, format_per_second, format_quotient};
use super::grid::{dash, write_section};
use super::line;
use super::naming::{named, short};

/// Headings of [`work_cells`].
pub(super) const WORK_COLUMNS: [&str; 5] = [">FLOP/s", ">bytes/s", ">FLOP/byte", ">of roof", "bound"];

/// Returns work per second, work per byte, and the share of the roof.
pub(super) fn work_cells(work: Option<&Work>) -> [String; 5] {
    let rate = |per_second: fn(&Work) -> f64| dash(work, |work| format_per_second(per_second(work)));
    let roof = work.and_then(|work| work.roofline);
    [
        rate(Work::flops_per_second),
        rate(Work::bytes_per_second),
        dash(work, |work| format_quotient(work.flops, work.bytes)),
        dash(roof, |roof| format_part(roof.share)),
        roof.map_or_else(String::new, |roof| roof.bound.name().to_owned()),
    ]
}

/// Returns the operations that lose the most time below the roof; without peaks those that take the most time.
pub(super) fn worst(summary: &Summary) -> Vec<&OperationSummary> {
    let lost_ns = |operation: &OperationSummary| {
        let work = operation.work.as_ref();
        work.map_or(0.0, |work| work.time_ns - work.roofline.map_or(0.0, |roof| roof.least_ns))
    };
    let mut worst: Vec<_> = summary.operations.iter().filter(|operation| operation.work.is_some()).collect();
    worst.sort_by(|one, other| lost_ns(other).total_cmp(&lost_ns(one)));
    worst
}

/// Says where the peaks are from, or how to name them.
pub(super) fn peaks_line(summary: &Summary) -> String {
    match &summary.peaks {
        Some(peaks) => roof_line(peaks),
        None => "no roof: the capture names no device whose peaks are known; name one with `--peaks`".to_owned(),
    }
}

/// Maximum number of sources in a line; of more, only the first is named.
const MAX_SOURCES: usize = 3;

/// Says whose roof it is.
pub(super) fn roof_line(peaks: &Peaks) -> String {
    let f32 = |per_second: Option<f64>| dash(per_second, format_per_second);
    let [matrix, vector] = [peaks.matrix_per_second(None), peaks.vector_per_second(None)].map(f32);
    let memory = format_per_second(peaks.bytes_per_second);
    // measured peaks have one for each figure
    let sources = match peaks.sources.as_slice() {
        [first, rest @ ..] if rest.len() >= MAX_SOURCES => format!("{first} and {} more", rest.len()),
        all => all.join("; "),
    };
    format!(
        "roof: {}, at most {matrix}FLOP/s of matrices, {vector}FLOP/s of the rest, {memory}B/s ({})",
        peaks.name, sources
    )
}

/// Returns the rates of a call's best config, or of its baseline if undecided, and its share of the roof.
pub(super) fn work_line(operation: &OperationResult) -> Option<String> {
    let time = operation.to_use();
    let work = time.work.as_ref()?;
    let [flops, bytes, ..] = work_cells(Some(work));
    let rates = format!("{flops}FLOP/s and {bytes}B/s");
    let Some(roof) = work.roofline else { return Some(rates) };
    let before = operation.baseline.work.as_ref().filter(|_| time.config != operation.baseline.config);
    let before = before.and_then(|work| work.roofline);
    let before = before.map_or_else(String::new, |roof| format!(" (baseline {})", format_part(roof.share)));
    Some(format!("{} of the roof{before}, bound by {}: {rates}", format_part(roof.share), roof.bound.name()))
}

/// Returns the temporary memory of a call's best config beside its baseline's, if they differ; otherwise of the
/// baseline, if it has any.
pub(super) fn temporary_memory(operation: &OperationResult) -> Option<String> {
    let before = operation.baseline.temporary_bytes;
    let best = operation.best.as_ref().filter(|best| best.config != operation.baseline.config);
    match best.and_then(|best| best.temporary_bytes) {
        Some(bytes) if before.is_some_and(|before| before != bytes) => {
            Some(format!("{} of temporary memory (baseline {})", format_bytes(bytes), dash(before, format_bytes)))
        }
        bytes => bytes
            .or(before)
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!("{} of temporary memory", format_bytes(bytes))),
    }
}

/// Writes the roofline of the operations, if the work of any is known.
pub(super) fn write_roofline(out: &mut dyn Write, summary: &Summary, top: usize) -> io::Result<()> {
    let worst = worst(summary);
    let order = if summary.peaks.is_some() { "most time lost below the roof first" } else { "most time first" };
    let title = format!("roofline of compute operations, {order}");
    let headings = [&[">share"][..], &WORK_COLUMNS, &["opcode", "operation"]].concat();
    let rows = worst.iter().map(|operation| {
        let last = [short(&operation.opcode), named(operation, summary.modules.len() > 1)];
        [format_part(operation.share)].into_iter().chain(work_cells(operation.work.as_ref())).chain(last)
    });
    write_section(out, &title, &headings, rows, top)?;
    if worst.is_empty() { Ok(()) } else { line!(out, "{}", peaks_line(summary)) }
}
