//! The roofline of a profile: its operations by FLOP/byte and FLOP/s, below the lines of the device's peaks.
//!
//! For a page, whose style it takes: <https://doi.org/10.1145/1498765.1498785> is the model.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::analysis::{Bound, OperationSummary, Summary, Work};
use crate::peaks::Peaks;
use crate::report::figures::{format_part, format_per_second, format_quotient};
use crate::report::format_ns;
use crate::report::html::escape::Text;

use super::axis::{Axis, number, rate};
use super::picture::Frame;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 440.0;
const FRAME: Frame = Frame { left: 76.0, top: 24.0, right: 690.0, bottom: 384.0 };
/// Maximum number of operations drawn.
const MOST: usize = 200;
/// Radius of an operation that takes no time, and the extra radius of the one with the most time.
const RADIUS: (f64, f64) = (3.5, 14.0);

/// An operation on the plot.
struct Point<'a> {
    operation: &'a OperationSummary,
    work: &'a Work,
}

impl Point<'_> {
    fn intensity(&self) -> f64 {
        self.work.flops / self.work.bytes
    }

    /// Its description when it has the focus or the pointer.
    fn label(&self) -> String {
        let Self { operation, work } = self;
        let roof = work.roofline.map_or_else(String::new, |roof| {
            format!("{} of the roof, bound by {}, ", format_part(roof.share), roof.bound.name())
        });
        format!(
            "{}: {roof}{}FLOP/s, {}B/s, {} FLOP/byte, {} in all, {} of the modules",
            operation.operation,
            format_per_second(work.flops_per_second()),
            format_per_second(work.bytes_per_second()),
            format_quotient(work.flops, work.bytes),
            format_ns(work.time_ns),
            format_part(operation.share)
        )
    }
}

/// Writes the figure; nothing if no operation computes.
pub(in crate::report) fn write_roofline_plot(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let known =
        summary.operations.iter().filter_map(|operation| Some(Point { operation, work: operation.work.as_ref()? }));
    let known: Vec<Point<'_>> = known.filter(|point| point.work.time_ns > 0.0).collect();
    let all = known.len();
    let mut points: Vec<Point<'_>> =
        known.into_iter().filter(|point| point.work.flops > 0.0 && point.work.bytes > 0.0).collect();
    points.sort_by(|one, other| other.work.time_ns.total_cmp(&one.work.time_ns));
    let computing = points.len();
    points.truncate(MOST);
    let roofs = summary.peaks.as_ref().map(roofs).unwrap_or_default();
    let ridges =
        summary.peaks.iter().flat_map(|peaks| roofs.iter().map(move |roof| roof.per_second / peaks.bytes_per_second));
    let across = Axis::of(points.iter().map(Point::intensity).chain(ridges), (-2, 3));
    let up = Axis::of(
        points.iter().map(|point| point.work.flops_per_second()).chain(roofs.iter().map(|roof| roof.per_second)),
        (6, 12),
    );
    let (Some(across), Some(up), false) = (across, up, points.is_empty()) else { return Ok(()) };
    writeln!(
        out,
        "<section>\n<h2 id=\"roofline\">Roofline</h2>\n<p class=\"fine\">Each circle is an operation, the larger the more time it took; what lies far below the \
         lines has room. Tab goes to the circles, ← and → from the one with the most time to the least. \
         <a href=\"#table-roofline\">The same as a table</a>.</p>\n<figure class=\"graph\"><div class=\"scroll\">\n\
         <svg class=\"roofline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"list\" \
         aria-label=\"Roofline: {} operations by FLOP/byte and FLOP/s\">",
        points.len()
    )?;
    write_axes(out, &across, &up)?;
    if let Some(peaks) = &summary.peaks {
        write_roofs(out, peaks, &roofs, (&across, &up))?;
    }
    let most_ns = points.first().map_or(1.0, |point| point.work.time_ns);
    for point in &points {
        let (x, y) = (FRAME.x(across.along(point.intensity())), FRAME.y(up.along(point.work.flops_per_second())));
        let radius = RADIUS.0 + RADIUS.1 * (point.work.time_ns / most_ns).sqrt();
        let class = match point.work.roofline.map(|roof| roof.bound) {
            Some(Bound::Compute) => "point compute",
            _ => "point",
        };
        let label = Text(&point.label()).to_string();
        writeln!(
            out,
            "<g class=\"{class}\" role=\"listitem\" aria-label=\"{label}\"><title>{label}</title>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/></g>"
        )?;
    }
    writeln!(out, "</svg></div>\n<p class=\"told\" aria-hidden=\"true\"></p></figure>")?;
    let mut skipped = Vec::new();
    if all > computing {
        skipped.push(format!("{} that only move data", all - computing));
    }
    if computing > points.len() {
        skipped.push(format!("{} with less time", computing - points.len()));
    }
    if !skipped.is_empty() {
        writeln!(out, "<p class=\"fine\">Not drawn: {}.</p>", skipped.join(" and "))?;
    }
    writeln!(out, "</section>")
}

fn write_axes(out: &mut dyn Write, across: &Axis, up: &Axis) -> io::Result<()> {
    let Frame { left, top, right, bottom } = FRAME;
    writeln!(out, "<g aria-hidden=\"true\">")?;
    for (along, tick) in across.ticks() {
        let (x, text) = (FRAME.x(along), tick.map(number).unwrap_or_default());
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 18.0
        )?;
    }
    for (along, tick) in up.ticks() {
        let (y, text) = (FRAME.y(along), tick.map(rate).unwrap_or_default());
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            left - 8.0,
            y + 4.0
        )?;
    }
    let middle = (left + right) / 2.0;
    let half = (top + bottom) / 2.0;
    writeln!(
        out,
        "<path class=\"frame\" d=\"M{left} {top}V{bottom}H{right}\"/><text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">FLOP/byte</text>\
         <text transform=\"translate(16 {half}) rotate(-90)\" text-anchor=\"middle\">FLOP/s</text></g>",
        bottom + 42.0
    )
}

/// A horizontal line.
struct ComputeRoof {
    name: String,
    per_second: f64,
    is_vector: bool,
}

/// The lines of the compute units, types with the same rate together, the highest first.
fn roofs(peaks: &Peaks) -> Vec<ComputeRoof> {
    let mut roofs: Vec<ComputeRoof> = Vec::new();
    for (figures, is_vector) in [(&peaks.matrix, false), (&peaks.vector, true)] {
        // rates are compared exactly
        let mut by_rate: BTreeMap<u64, (f64, Vec<String>)> = BTreeMap::new();
        for (dtype, per_second) in figures {
            by_rate.entry(per_second.to_bits()).or_insert((*per_second, Vec::new())).1.push(dtype.to_string());
        }
        let unit = if is_vector { "other units" } else { "matrices" };
        roofs.extend(by_rate.into_values().map(|(per_second, types)| ComputeRoof {
            name: format!("{unit}, {}", types.join(", ")),
            per_second,
            is_vector,
        }));
    }
    roofs.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
    roofs
}

/// The memory's line up to the highest of the others, and these from where they intersect it.
fn write_roofs(
    out: &mut dyn Write,
    peaks: &Peaks,
    roofs: &[ComputeRoof],
    (across, up): (&Axis, &Axis),
) -> io::Result<()> {
    let place = |x: f64, y: f64| (FRAME.x(across.along(x)), FRAME.y(up.along(y)));
    let bandwidth = peaks.bytes_per_second;
    let ((x_low, x_high), (y_low, _)) = (across.ends(), up.ends());
    let Some(highest) = roofs.first() else { return Ok(()) };
    writeln!(out, "<g class=\"roofs\" role=\"listitem\" aria-label=\"{}\">", Text(&label_of_roofs(peaks, roofs)))?;
    let from = x_low.max(y_low / bandwidth);
    let (x0, y0) = place(from, from * bandwidth);
    let (x1, y1) = place(highest.per_second / bandwidth, highest.per_second);
    let angle = (y1 - y0).atan2(x1 - x0).to_degrees();
    writeln!(
        out,
        "<path d=\"M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}\"/><text transform=\"translate({:.1} {:.1}) rotate({angle:.1})\" text-anchor=\"middle\">memory, {}B/s</text>",
        (x0 + x1) / 2.0 - 5.0,
        (y0 + y1) / 2.0 - 7.0,
        format_per_second(bandwidth)
    )?;
    let mut last_text = f64::NEG_INFINITY;
    for roof in roofs {
        let (x0, y) = place(roof.per_second / bandwidth, roof.per_second);
        let (x1, _) = place(x_high, roof.per_second);
        let class = if roof.is_vector { " class=\"vector\"" } else { "" };
        // the highest comes first, so that none overlaps another
        let text = (y + 4.0).max(last_text + 14.0);
        let (name, rate) = (Text(&roof.name), format_per_second(roof.per_second));
        writeln!(
            out,
            "<path{class} d=\"M{x0:.1} {y:.1}H{x1:.1}\"/><text x=\"{}\" y=\"{text:.1}\">{name}, {rate}FLOP/s</text>",
            FRAME.right + 8.0
        )?;
        last_text = text;
    }
    writeln!(out, "</g>")
}

fn label_of_roofs(peaks: &Peaks, roofs: &[ComputeRoof]) -> String {
    let roofs = roofs.iter().map(|roof| format!("{} {}FLOP/s", roof.name, format_per_second(roof.per_second)));
    let roofs: Vec<String> = roofs.collect();
    format!("Roofs of {}: memory {}B/s; {}", peaks.name, format_per_second(peaks.bytes_per_second), roofs.join("; "))
}
