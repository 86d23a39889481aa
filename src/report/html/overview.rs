//! The table of operations, which can be sorted and filtered.

use maud::{Markup, html};

use crate::report::differences::differences;
use crate::report::figures::format_interval;
use crate::report::grid::dash;
use crate::report::naming::name_with_direction;
use crate::report::{format_ns, format_part, format_ratio};
use crate::tune::{AutotuningResult, MissedLabel, OperationResult, Status};

use super::axis::RatioAxis;
use super::cells::{heading, name_cell, number_cell, status_cell, strips_heading, table, text_cell};
use super::escape::prose;

/// The column for runs with a profile of a step.
const SHARE: &str = "Of the step";
/// The column for runs on a device with known peaks.
const ROOF: &str = "Of the roof";
const COLUMNS: [&str; 9] = ["Operation", "Status", SHARE, "Baseline", "Best", "Speed-up", ROOF, "Rounds", "Evidence"];

/// The columns that not every run has.
#[derive(Clone, Copy)]
struct OptionalColumns {
    share: bool,
    roof: bool,
}

/// Returns the share of the roof that a call reaches with its best config, or with its baseline if undecided.
fn roof_of(operation: &OperationResult) -> Option<f64> {
    let time = operation.to_use();
    Some(time.work.as_ref()?.roofline?.share)
}

/// Returns the word for a status in a class.
pub(super) fn status_class(status: Status) -> &'static str {
    match status {
        Status::Tuned => "tuned",
        Status::BaselineKept => "kept",
        Status::Cached => "cached",
        Status::Failed | Status::NotBelieved => "failed",
        _ => "open",
    }
}

/// Draws the table; the operations' sections have the ids `op-N`, counted from `first`.
pub(super) fn overview(result: &AutotuningResult, first: usize) -> Markup {
    let operations = &result.operations;
    let intervals = operations.iter().filter_map(|operation| operation.speed_up_interval);
    let speed_ups = operations.iter().filter_map(|operation| operation.speed_up);
    let axis = RatioAxis::of(speed_ups.chain(intervals.flat_map(|interval| [interval.low, interval.high])));
    let with = OptionalColumns {
        share: result.step.is_some(),
        roof: operations.iter().any(|operation| roof_of(operation).is_some()),
    };
    let columns = COLUMNS.into_iter().filter(|name| (with.share || *name != SHARE) && (with.roof || *name != ROOF));
    let headings = html! {
        @for (index, name) in columns.enumerate() {
            (heading(index, name, !["Operation", "Status", "Evidence"].contains(&name)))
            @if name == "Speed-up" { (strips_heading("Interval of the speed-up", &axis)) }
        }
    };
    let rows = html! {
        @for (index, operation) in operations.iter().enumerate() { (row(operation, first + index, with, &axis)) }
        @for missed in &result.missed { (missed_row(missed, with)) }
    };
    table("overview", "Operations", &headings, &rows)
}

fn missed_row(missed: &MissedLabel, with: OptionalColumns) -> Markup {
    let none = |name: &str| number_cell(name, None, "—", None);
    html! {
        tr role="row" data-status="no match" {
            (name_cell(&missed.label.to_string(), None, &prose(&missed.reason)))
            (status_cell("no match", "failed", None))
            @if with.share { (none("share")) }
            (none("baseline")) (none("best")) (none("speed-up"))
            td role="cell" class="strips" {}
            @if with.roof { (none("roof")) }
            (none("rounds")) (text_cell("evidence", &missed.evidence.to_string()))
        }
    }
}

fn row(operation: &OperationResult, number: usize, with: OptionalColumns, axis: &RatioAxis) -> Markup {
    let OperationResult { baseline, best, speed_up, .. } = operation;
    let under = match best {
        Some(best) if best.config == baseline.config => "keep the baseline".to_owned(),
        Some(best) => format!("use {}", differences(&best.config, &baseline.config).0),
        None => operation.reason.clone(),
    };
    let status = operation.status.name();
    let failures = operation.candidates.iter().filter(|candidate| candidate.failure().is_some()).count();
    let failed = (failures > 0).then(|| format!("{failures} failed"));
    let rounds = u64::from(operation.rounds_kept) + u64::from(operation.rounds_measured);
    let interval = operation.speed_up_interval.map(|interval| format_interval(interval, 2));
    let evidence = if operation.occurrences > 0 { operation.evidence.to_string() } else { "—".to_owned() };
    let number_of = |name: &str, value: Option<f64>, text: fn(f64) -> String, beside: Option<&str>| {
        number_cell(name, value, &dash(value, text), beside)
    };
    html! {
        tr role="row" data-status=(status) data-section={"op-" (number)} {
            (name_cell(&name_with_direction(operation), Some(number), &prose(&under)))
            (status_cell(status, status_class(operation.status), failed.as_deref()))
            @if with.share { (number_of("share", operation.share, format_part, None)) }
            (number_of("baseline", baseline.median_ns, format_ns, None))
            (number_of("best", best.as_ref().and_then(|best| best.median_ns), format_ns, None))
            (number_of("speed-up", *speed_up, format_ratio, interval.as_deref()))
            td role="cell" class="strips" { (strip(operation, axis)) }
            @if with.roof { (number_of("roof", roof_of(operation), format_part, None)) }
            (number_cell("rounds", Some(rounds as f64), &rounds.to_string(), None))
            (text_cell("evidence", &evidence))
        }
    }
}

/// Draws the interval of the speed-up on the axis.
fn strip(operation: &OperationResult, axis: &RatioAxis) -> Markup {
    let Some((speed_up, interval)) = operation.speed_up.zip(operation.speed_up_interval) else { return html! {} };
    let is_better = operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config);
    let kind = if is_better { "strip best small" } else { "strip base small" };
    let [low, high, point] = [interval.low, interval.high, speed_up].map(|ratio| axis.place(ratio));
    html! {
        svg class=(kind) viewBox="0 0 1000 22" preserveAspectRatio="none" aria-hidden="true" {
            (axis.lines(22))
            path.interval d=(format_args!("M{low:.1} 11H{high:.1}")) {}
            path.point d=(format_args!("M{point:.1} 11h0")) {}
        }
    }
}
