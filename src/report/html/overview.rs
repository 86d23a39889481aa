//! The table of operations, which can be sorted and filtered.

use std::io::{self, Write};

use crate::call::Direction;
use crate::report::differences::differences;
use crate::report::{format_ns, format_part, format_ratio};
use crate::tune::{AutotuningResult, OperationResult, Status};

use super::axis::Axis;
use super::escape::{Prose, Text};

/// The column for runs with a profile of a step.
const SHARE: &str = "Of the step";
/// The column for runs on a device with known peaks.
const ROOF: &str = "Of the roof";
/// A column: its name and how its values are ordered.
const COLUMNS: [(&str, &str); 9] = [
    ("Operation", "text"),
    ("Status", "text"),
    (SHARE, "number"),
    ("Baseline", "number"),
    ("Best", "number"),
    ("Speed-up", "number"),
    (ROOF, "number"),
    ("Rounds", "number"),
    ("Evidence", "text"),
];

/// The cell of an operation without a roof share.
const NO_ROOF: &str = "<td role=\"cell\" class=\"number\" data-name=\"roof\">—</td>";
/// The cell of an operation without a share.
const NO_SHARE: &str = "<td role=\"cell\" class=\"number\" data-name=\"share\">—</td>";

/// The columns that not every run has.
#[derive(Clone, Copy)]
struct OptionalColumns {
    share: bool,
    roof: bool,
}

/// The share of the roof that a call reaches with its best config, or with its baseline if undecided.
fn roof_of(operation: &OperationResult) -> Option<f64> {
    let time = operation.best.as_ref().unwrap_or(&operation.baseline);
    Some(time.work.as_ref()?.roofline?.share)
}

/// `op@vN:key`, with its direction unless it is forward.
pub(super) fn name_of(operation: &OperationResult) -> String {
    let direction = if operation.direction == Direction::Forward { "" } else { " (with vjp)" };
    format!("{}{direction}", operation.call.to_short())
}

/// The word for a status in a class.
pub(super) fn status_class(status: Status) -> &'static str {
    match status {
        Status::Tuned => "tuned",
        Status::BaselineKept => "kept",
        Status::Cached => "cached",
        Status::Failed | Status::NotBelieved => "failed",
        _ => "open",
    }
}

/// Writes the table; the operations' sections have the ids `op-N`, counted from `first`.
pub(super) fn write_overview(result: &AutotuningResult, first: usize, out: &mut dyn Write) -> io::Result<()> {
    let intervals = result.operations.iter().filter_map(|operation| operation.speed_up_interval);
    let speed_ups = result.operations.iter().filter_map(|operation| operation.speed_up);
    let axis = Axis::of(speed_ups.chain(intervals.flat_map(|interval| [interval.low, interval.high])));
    write!(
        out,
        "<table class=\"overview\" role=\"table\"><caption class=\"unseen\">Operations</caption><thead role=\"rowgroup\"><tr role=\"row\">"
    )?;
    let with = OptionalColumns {
        share: result.step.is_some(),
        roof: result.operations.iter().any(|one| roof_of(one).is_some()),
    };
    let columns =
        COLUMNS.into_iter().filter(|(name, _)| (with.share || *name != SHARE) && (with.roof || *name != ROOF));
    for (index, (name, kind)) in columns.enumerate() {
        let class = if kind == "number" { " class=\"number\"" } else { "" };
        write!(
            out,
            "<th role=\"columnheader\" scope=\"col\"{class} data-column=\"{index}\" data-kind=\"{kind}\"><span class=\"label\">{name}</span></th>"
        )?;
        if name == "Speed-up" {
            write!(
                out,
                "<th role=\"columnheader\" class=\"strips\"><span class=\"unseen\">Interval of the speed-up</span>"
            )?;
            axis.write(out)?;
            write!(out, "</th>")?;
        }
    }
    writeln!(out, "</tr></thead><tbody role=\"rowgroup\">")?;
    for (index, operation) in result.operations.iter().enumerate() {
        write_row(operation, (first + index, with), &axis, out)?;
    }
    for missed in &result.missed {
        let name = missed.label.to_string();
        writeln!(
            out,
            "<tr role=\"row\" data-status=\"no match\"><th role=\"rowheader\" scope=\"row\" data-value=\"{0}\"><span class=\"op\">{0}</span>\
             <small>{1}</small></th><td role=\"cell\" data-value=\"no match\"><span class=\"badge failed\">no match</span></td>{3}\
             <td role=\"cell\" class=\"number\" data-name=\"baseline\">—</td><td role=\"cell\" class=\"number\" data-name=\"best\">—</td>\
             <td role=\"cell\" class=\"number\" data-name=\"speed-up\">—</td><td role=\"cell\" class=\"strips\"></td>{4}\
             <td role=\"cell\" class=\"number\" data-name=\"rounds\">—</td><td role=\"cell\" data-name=\"evidence\" data-value=\"{2}\">{2}</td></tr>",
            Text(&name),
            Prose(&missed.reason),
            missed.evidence,
            if with.share { NO_SHARE } else { "" },
            if with.roof { NO_ROOF } else { "" }
        )?;
    }
    writeln!(out, "</tbody></table>")
}

fn write_row(
    operation: &OperationResult,
    (number, with): (usize, OptionalColumns),
    axis: &Axis,
    out: &mut dyn Write,
) -> io::Result<()> {
    let dash = || "—".to_owned();
    let value = |value: Option<f64>| value.map_or_else(String::new, |value| format!(" data-value=\"{value}\""));
    let (baseline_ns, best_ns) =
        (operation.baseline.median_ns, operation.best.as_ref().and_then(|best| best.median_ns));
    let under = match &operation.best {
        Some(best) if best.config == operation.baseline.config => "keep the baseline".to_owned(),
        Some(best) => format!("use {}", differences(&best.config, &operation.baseline.config).0),
        None => operation.reason.clone(),
    };
    let status = operation.status.name();
    let failures = operation.candidates.iter().filter(|candidate| candidate.failure().is_some()).count();
    let failed = if failures > 0 { format!(" <small>{failures} failed</small>") } else { String::new() };
    let class = status_class(operation.status);
    let share = match operation.share.filter(|_| with.share) {
        Some(share) => format!(
            "<td role=\"cell\" class=\"number\" data-name=\"share\"{}>{}</td>",
            value(Some(share)),
            format_part(share)
        ),
        None if with.share => NO_SHARE.to_owned(),
        None => String::new(),
    };
    let roof = match roof_of(operation).filter(|_| with.roof) {
        Some(share) => format!(
            "<td role=\"cell\" class=\"number\" data-name=\"roof\"{}>{}</td>",
            value(Some(share)),
            format_part(share)
        ),
        None if with.roof => NO_ROOF.to_owned(),
        None => String::new(),
    };
    let rounds = u64::from(operation.rounds_kept) + u64::from(operation.rounds_measured);
    let interval = operation
        .speed_up_interval
        .map_or_else(String::new, |interval| format!(" <small>{:.2}–{:.2}</small>", interval.low, interval.high));
    write!(
        out,
        "<tr role=\"row\" data-status=\"{status}\" data-section=\"op-{number}\">\
         <th role=\"rowheader\" scope=\"row\" data-value=\"{name}\"><a class=\"op\" href=\"#op-{number}\">{name}</a><small>{under}</small></th>\
         <td role=\"cell\" data-value=\"{status}\"><span class=\"badge {class}\">{status}</span>{failed}</td>{share}\
         <td role=\"cell\" class=\"number\" data-name=\"baseline\"{}>{}</td><td role=\"cell\" class=\"number\" data-name=\"best\"{}>{}</td>\
         <td role=\"cell\" class=\"number\" data-name=\"speed-up\"{}>{}{interval}</td><td role=\"cell\" class=\"strips\">",
        value(baseline_ns),
        baseline_ns.map_or_else(dash, format_ns),
        value(best_ns),
        best_ns.map_or_else(dash, format_ns),
        value(operation.speed_up),
        operation.speed_up.map_or_else(dash, format_ratio),
        name = Text(&name_of(operation)),
        under = Prose(&under),
    )?;
    if let (Some(speed_up), Some(interval)) = (operation.speed_up, operation.speed_up_interval) {
        let kind = if operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config) {
            "best"
        } else {
            "base"
        };
        write!(
            out,
            "<svg class=\"strip {kind} small\" viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
        )?;
        axis.write_lines(22, out)?;
        write!(
            out,
            r#"<path class="interval" d="M{:.1} 11H{:.1}"/><path class="point" d="M{:.1} 11h0"/></svg>"#,
            axis.place(interval.low),
            axis.place(interval.high),
            axis.place(speed_up)
        )?;
    }
    writeln!(
        out,
        "</td>{roof}<td role=\"cell\" class=\"number\" data-name=\"rounds\" data-value=\"{rounds}\">{rounds}</td>\
         <td role=\"cell\" data-name=\"evidence\" data-value=\"{0}\">{0}</td></tr>",
        if operation.occurrences > 0 { operation.evidence.to_string() } else { "—".to_owned() }
    )
}
