//! The roofline of a profile: its operations by FLOP/byte and FLOP/s, below the lines of the device's peaks.
//!
//! For a page, whose style it takes: <https://doi.org/10.1145/1498765.1498785> is the model.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::analysis::{Bound, OperationSummary, Summary, Work};
use crate::peaks::Peaks;
use crate::report::figures::{format_part, format_per_second, format_quotient};
use crate::report::format_ns;

use super::axis::{LogAxis, number, rate};

/// Height of the frame. Its width is the page's: positions across are parts of it, so that it fits a phone, too.
const HEIGHT: f64 = 360.0;
/// Part of the memory's line before its name.
const BEFORE_NAME: f64 = 0.25;
/// Number of ticks whose labels all fit a phone.
const FEW_TICKS: usize = 5;
/// Maximum number of operations drawn.
const MOST: usize = 200;
/// Radius of an operation that takes no time, and the extra radius of the one with the most time.
const RADIUS: (f64, f64) = (3.5, 14.0);

/// An operation on the plot.
struct RooflinePoint<'a> {
    operation: &'a OperationSummary,
    work: &'a Work,
}

impl RooflinePoint<'_> {
    fn intensity(&self) -> f64 {
        self.work.flops / self.work.bytes
    }

    /// Returns its description when it has the focus or the pointer.
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

impl<'a> RooflinePoint<'a> {
    /// Returns the operations whose work is known, and of them those that compute, the longest first.
    fn all(summary: &'a Summary) -> (usize, Vec<Self>) {
        let known =
            summary.operations.iter().filter_map(|operation| Some(Self { operation, work: operation.work.as_ref()? }));
        let known: Vec<Self> = known.filter(|point| point.work.time_ns > 0.0).collect();
        let all = known.len();
        let mut points: Vec<Self> =
            known.into_iter().filter(|point| point.work.flops > 0.0 && point.work.bytes > 0.0).collect();
        points.sort_by(|one, other| other.work.time_ns.total_cmp(&one.work.time_ns));
        (all, points)
    }
}

/// Draws the figure; nothing if no operation computes.
pub(in crate::report) fn roofline_plot(summary: &Summary) -> Markup {
    let (all, mut points) = RooflinePoint::all(summary);
    let skipped = [(all - points.len(), "that only move data"), (points.len().saturating_sub(MOST), "with less time")];
    let skipped = skipped.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let skipped: Vec<String> = skipped.collect();
    points.truncate(MOST);
    let roofs = summary.peaks.as_ref().map(roofs).unwrap_or_default();
    let ridges =
        summary.peaks.iter().flat_map(|peaks| roofs.iter().map(move |roof| roof.per_second / peaks.bytes_per_second));
    let across = LogAxis::of(points.iter().map(RooflinePoint::intensity).chain(ridges), (-2, 3));
    let rates = points.iter().map(|point| point.work.flops_per_second());
    let up = LogAxis::of(rates.chain(roofs.iter().map(|roof| roof.per_second)), (6, 12));
    let (Some(across), Some(up), Some(first)) = (across, up, points.first()) else { return html! {} };
    let name = format!("Roofline: {} operations by FLOP/byte and FLOP/s", points.len());
    html! {
        section {
            h2 #roofline { "Roofline" }
            p.fine {
                "Each circle is an operation, the larger the more time it took; what lies far below the lines has \
                 room. Tab goes to the circles, ← and → from the one with the most time to the least. "
                a href="#table-roofline" { "The same as a table" } "."
            }
            figure.graph {
                div.plot {
                    svg.roofline width="100%" height=(HEIGHT) role="list" aria-label=(name) {
                        (axes(&across, &up))
                        @if let Some(peaks) = &summary.peaks { (roof_lines(peaks, &roofs, &across, &up)) }
                        @for point in &points { (circle(point, first.work.time_ns, &across, &up)) }
                    }
                    @if !roofs.is_empty() { (names_of_roofs(&roofs)) }
                }
                p.told aria-hidden="true" {}
            }
            @if !skipped.is_empty() { p.fine { "Not drawn: " (skipped.join(" and ")) "." } }
        }
    }
}

/// Writes a position across.
fn across_at(along: f64) -> String {
    format!("{:.2}%", 100.0 * along)
}

/// Writes a height.
fn up_at(along: f64) -> String {
    format!("{:.1}", HEIGHT * (1.0 - along))
}

fn circle(point: &RooflinePoint<'_>, most_ns: f64, across: &LogAxis, up: &LogAxis) -> Markup {
    let (x, y) = (across.along(point.intensity()), up.along(point.work.flops_per_second()));
    let radius = RADIUS.0 + RADIUS.1 * (point.work.time_ns / most_ns).sqrt();
    let class = match point.work.roofline.map(|roof| roof.bound) {
        Some(Bound::Compute) => "point compute",
        _ => "point",
    };
    let label = point.label();
    html! {
        g class=(class) role="listitem" aria-label=(label) {
            title { (label) }
            circle cx=(across_at(x)) cy=(up_at(y)) r=(format_args!("{radius:.1}")) {}
        }
    }
}

fn axes(across: &LogAxis, up: &LogAxis) -> Markup {
    let ticks = across.ticks();
    // a phone has room for half of many labels
    let is_spare = |place: usize| ticks.len() > FEW_TICKS && place % 2 == 1;
    let columns = ticks.iter().enumerate();
    let columns = columns.map(|(place, &(along, tick))| (is_spare(place), across_at(along), tick.map(number)));
    let lines = up.ticks().into_iter().map(|(along, tick)| (up_at(along), tick.map(rate)));
    html! {
        g aria-hidden="true" {
            @for (is_spare, x, text) in columns {
                line.grid x1=(x) y1="0" x2=(x) y2=(HEIGHT) {}
                text.spare[is_spare] x=(x) y=(HEIGHT + 18.0) text-anchor="middle" { (text.unwrap_or_default()) }
            }
            @for (y, text) in lines {
                line.grid x1="0" y1=(y) x2="100%" y2=(y) {}
                text x="-8" y=(y) dy="4" text-anchor="end" { (text.unwrap_or_default()) }
            }
            line.frame x1="0" y1="0" x2="0" y2=(HEIGHT) {}
            line.frame x1="0" y1=(HEIGHT) x2="100%" y2=(HEIGHT) {}
            text x="50%" y=(HEIGHT + 42.0) text-anchor="middle" { "FLOP/byte" }
            text x="-8" y="-16" text-anchor="end" { "FLOP/s" }
        }
    }
}

/// A horizontal line.
struct ComputeRoof {
    name: String,
    per_second: f64,
    is_vector: bool,
}

impl ComputeRoof {
    fn text(&self) -> String {
        format!("{}, {}FLOP/s", self.name, format_per_second(self.per_second))
    }
}

/// Returns the lines of the compute units, types with the same rate together, the highest first.
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

/// Draws the memory's line up to the highest of the others, and these from where they intersect it.
fn roof_lines(peaks: &Peaks, roofs: &[ComputeRoof], across: &LogAxis, up: &LogAxis) -> Markup {
    let place = |x: f64, y: f64| (across.along(x), up.along(y));
    let bandwidth = peaks.bytes_per_second;
    let ((x_low, _), (y_low, _)) = (across.ends(), up.ends());
    let Some(highest) = roofs.first() else { return html! {} };
    let from = x_low.max(y_low / bandwidth);
    let (x0, y0) = place(from, from * bandwidth);
    let (x1, y1) = place(highest.per_second / bandwidth, highest.per_second);
    let (x, y) = (x0 + BEFORE_NAME * (x1 - x0), y0 + BEFORE_NAME * (y1 - y0));
    let mut last_text = f64::NEG_INFINITY;
    let lines = roofs.iter().zip(1..).map(|(roof, number)| {
        let (x, y) = place(roof.per_second / bandwidth, roof.per_second);
        // the highest comes first, so that none overlaps another
        last_text = (HEIGHT * (1.0 - y)).max(last_text + 14.0);
        (roof, number, across_at(x), up_at(y), format!("{last_text:.1}"))
    });
    html! {
        g.roofs role="listitem" aria-label=(label_of_roofs(peaks, roofs)) {
            line x1=(across_at(x0)) y1=(up_at(y0)) x2=(across_at(x1)) y2=(up_at(y1)) {}
            text x=(across_at(x)) y=(up_at(y)) dx="10" dy="10" { "memory, " (format_per_second(bandwidth)) "B/s" }
            @for (roof, number, x, y, at) in lines {
                line class=[roof.is_vector.then_some("vector")] x1=(x) y1=(y) x2="100%" y2=(y) {}
                text x="100%" y=(at) dx="8" dy="4" { tspan.number { (number) } tspan.name { (roof.text()) } }
            }
        }
    }
}

/// Names the numbers of the lines, for a page that is too narrow for names beside them.
fn names_of_roofs(roofs: &[ComputeRoof]) -> Markup {
    html! { ol.names aria-hidden="true" { @for roof in roofs { li { (roof.text()) } } } }
}

fn label_of_roofs(peaks: &Peaks, roofs: &[ComputeRoof]) -> String {
    let roofs: Vec<String> = roofs.iter().map(ComputeRoof::text).collect();
    format!("Roofs of {}: memory {}B/s; {}", peaks.name, format_per_second(peaks.bytes_per_second), roofs.join("; "))
}
