//! The spread of each compute operation against its mean.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::analysis::{MeanStd, OperationSummary, Summary};
use crate::counted::counted;
use crate::report::naming::program;
use crate::report::{format_ns, format_part};

use super::axis::{LogAxis, part, time};
use super::picture::{MarkStyle, PanelFrame, Picture, STYLES, draw, escaped};

const WIDTH: f64 = 1080.0;
/// Width of the names beside the plot.
const BESIDE: f64 = 250.0;
const HEIGHT: f64 = 640.0;
/// Maximum number of operations drawn: those with the most time.
const MOST: usize = 5000;
/// Opcodes with a mark of their own; the others share one.
const OPCODES: usize = 6;
/// Maximum number of operations with their name beside them.
const NAMES: usize = 8;
/// Maximum number of characters of a name.
const LONGEST: usize = 28;
/// Height of a line of names.
const LINE: f64 = 18.0;
const OTHER: MarkStyle = STYLES[7];

/// An operation that is drawn.
struct SpreadPoint<'a> {
    operation: &'a OperationSummary,
    mean: f64,
    spread: f64,
    /// Deviation times executions, or runs: what a steady operation would have saved or lost, in nanoseconds.
    excess: f64,
}

/// Writes the plot. `false` if no operation ran twice, and nothing is written.
pub fn write_spread_plot(out: &mut dyn Write, summary: &Summary) -> io::Result<bool> {
    let compute: Vec<&OperationSummary> =
        summary.operations.iter().filter(|operation| !operation.communication).collect();
    let mut points: Vec<SpreadPoint<'_>> = compute.iter().filter_map(|operation| point(operation)).collect();
    let once = compute.len() - points.len();
    // the operations come by their time
    let more = points.len().saturating_sub(MOST);
    points.truncate(MOST);
    let across = LogAxis::of(points.iter().map(|point| point.mean), (0, 3));
    let up = LogAxis::of(points.iter().map(|point| point.spread), (-3, 0));
    let (Some(across), Some(up)) = (across, up) else { return Ok(false) };

    let mut picture = Picture::new("Spread of compute operations", (WIDTH, HEIGHT));
    let opcodes = opcodes(&points);
    let style = |opcode: &str| {
        let place = opcodes.iter().position(|one| *one == opcode);
        place.and_then(|place| STYLES.get(place)).copied().unwrap_or(OTHER)
    };
    let others = points.iter().any(|point| !opcodes.contains(&point.operation.opcode.as_str()));
    let names: Vec<String> = opcodes.iter().map(|opcode| cut(opcode)).collect();
    let entries = names.iter().zip(&opcodes).map(|(name, opcode)| (style(opcode), name.as_str()));
    let above = picture.legend(entries.chain(others.then_some((OTHER, "other"))), 54.0);
    let frame = PanelFrame { left: 92.0, top: above + 20.0, right: WIDTH - BESIDE, bottom: HEIGHT - 92.0 };
    let of_runs = points.iter().any(|point| point.operation.run_ns.is_some());
    let what = if of_runs { "mean time of a run" } else { "mean self time in an execution" };
    picture.columns(&frame, &across, time);
    picture.lines(&frame, &up, part);
    picture.frame(&frame, "", what, "deviation over mean");
    // many marks are easier to read if they are small
    let (size, opacity) = if points.len() > 200 { (0.65, 0.6) } else { (1.0, 0.85) };
    for point in &points {
        let (class, mark) = style(&point.operation.opcode);
        let (x, y) = place(point, &frame, &across, &up);
        draw!(
            picture,
            "<path class=\"{class}\" opacity=\"{opacity}\" transform=\"translate({x:.1} {y:.1}) scale({size})\" \
             d=\"{mark}\">"
        );
        draw!(picture, "<title>{}</title></path>\n", escaped(&title(point.operation, point)));
    }
    write_names(&mut picture, &points, &frame, &across, &up);
    let y = HEIGHT - 18.0;
    draw!(
        picture,
        "<text class=\"soft\" x=\"24\" y=\"{y}\">{}</text>\n",
        escaped(&caption(points.len(), once, more, of_runs))
    );
    out.write_all(&picture.finish())?;
    Ok(true)
}

/// Says how many operations are drawn, ran once, and are too many.
fn caption(drawn: usize, once: usize, more: usize, of_runs: bool) -> String {
    let (times, ran) = if of_runs { ("runs", "once") } else { ("executions", "in one execution") };
    let mut caption = format!("{} drawn. Labelled: the largest deviation × {times}.", counted(drawn, "operation"));
    if once > 0 {
        caption += &format!(" {once} that ran {ran}, or took no time, have no spread.");
    }
    if more > 0 {
        caption += &format!(" {more} with less time are left out.");
    }
    caption
}

fn point(operation: &OperationSummary) -> Option<SpreadPoint<'_>> {
    let (MeanStd { mean, std }, times) = operation.varying_ns();
    let std = std?;
    let point = SpreadPoint { operation, mean, spread: std / mean, excess: std * times as f64 };
    (mean > 0.0 && point.spread.is_finite()).then_some(point)
}

fn place(point: &SpreadPoint<'_>, frame: &PanelFrame, across: &LogAxis, up: &LogAxis) -> (f64, f64) {
    (frame.x(across.along(point.mean)), frame.y(up.along(point.spread)))
}

/// Returns the opcodes with the most excess, most first.
fn opcodes<'a>(points: &[SpreadPoint<'a>]) -> Vec<&'a str> {
    let mut excess: BTreeMap<&str, f64> = BTreeMap::new();
    for point in points {
        *excess.entry(&point.operation.opcode).or_default() += point.excess;
    }
    let mut opcodes: Vec<(&str, f64)> = excess.into_iter().collect();
    opcodes.sort_by(|one, other| other.1.total_cmp(&one.1));
    opcodes.into_iter().take(OPCODES).map(|(opcode, _)| opcode).collect()
}

fn title(operation: &OperationSummary, point: &SpreadPoint<'_>) -> String {
    let source = operation.source.as_ref().map_or_else(String::new, |source| format!(", {source}"));
    format!(
        "{} of {}{source}: {} ± {} ({}), {} executions, {} events",
        operation.operation,
        program(&operation.module, operation.program_id),
        format_ns(point.mean),
        format_ns(point.spread * point.mean),
        format_part(point.spread),
        operation.executions,
        operation.count
    )
}

fn cut(name: &str) -> String {
    let mut short: String = name.chars().take(LONGEST).collect();
    if name.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// Writes the names of the operations with the most excess, beside the plot in the order of their marks, each with a
/// line to its mark.
fn write_names(picture: &mut Picture, points: &[SpreadPoint<'_>], frame: &PanelFrame, across: &LogAxis, up: &LogAxis) {
    let mut named: Vec<&SpreadPoint<'_>> = points.iter().filter(|point| point.excess > 0.0).collect();
    named.sort_by(|one, other| other.excess.total_cmp(&one.excess));
    named.truncate(NAMES);
    let mut named: Vec<(f64, f64, &SpreadPoint<'_>)> = named
        .into_iter()
        .map(|point| (place(point, frame, across, up), point))
        .map(|((x, y), point)| (x, y, point))
        .collect();
    named.sort_by(|one, other| one.1.total_cmp(&other.1).then(other.0.total_cmp(&one.0)));
    let mut left = named.len() as f64;
    let mut free = frame.top + LINE / 2.0;
    for (x, y, point) in named {
        // at the height of its mark, if that leaves room for those above and below
        let at = y.min(frame.bottom - LINE * left).max(free);
        (free, left) = (at + LINE, left - 1.0);
        let (edge, name) = (frame.right, cut(&point.operation.operation));
        draw!(picture, "<circle class=\"frame\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\"/>");
        draw!(picture, "<path class=\"frame\" d=\"M{:.1} {y:.1}L{edge:.1} {at:.1}h8\"/>", x + 8.0);
        draw!(picture, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n", edge + 13.0, at + 4.5, escaped(&name));
    }
}
