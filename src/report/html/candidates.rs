//! The candidates of one operation, one per row, each with its strip.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::array::ComparedBy;
use crate::counted::counted;
use crate::decision::DropReason;
use crate::report::differences::differences;
use crate::report::figures::{expected_text, format_confidence, format_interval};
use crate::report::grid::dash;
use crate::report::naming::brief_config;
use crate::report::{format_bytes, format_ns, format_part, format_ratio};
use crate::tune::{CandidateRace, CandidateResult, CandidateStatus, OperationResult, RaceStage};

use super::axis::RatioAxis;
use super::cells::{number_cell, strips_heading, table};
use super::escape::prose;
use super::strip::SampleStrip;

/// A candidate's role in its operation.
#[derive(Clone, Copy, PartialEq)]
struct CandidateRole {
    is_best: bool,
    is_baseline: bool,
}

impl CandidateRole {
    fn of(operation: &OperationResult, candidate: &CandidateResult) -> Self {
        let is_best = operation.best.as_ref().is_some_and(|best| best.config == candidate.config);
        Self { is_best, is_baseline: candidate.config == operation.baseline.config }
    }
}

/// A row of the table: a candidate, its role and its samples.
struct CandidateRow<'a> {
    candidate: &'a CandidateResult,
    role: CandidateRole,
    strip: SampleStrip,
}

/// Draws the table of an operation's candidates, the fastest first and those without a time last.
pub(super) fn candidates(operation: &OperationResult, name: &str) -> Markup {
    let is_folded = |row: &CandidateRow<'_>| {
        row.candidate.status() == CandidateStatus::SameProgram && !row.role.is_best && !row.role.is_baseline
    };
    let (folded, rows): (Vec<_>, Vec<_>) = sorted_rows(operation).into_iter().partition(is_folded);
    let with_memory = rows.iter().any(|row| row.candidate.temporary_bytes.is_some());
    let (class, columns) = if with_memory { ("candidates with-memory", 7) } else { ("candidates", 6) };
    let axis = axis_of(&rows);
    let mut stage = None;
    // the race of a row, where it is the first of it
    let mut begins = |row: &CandidateRow<'_>| {
        let race = row.candidate.race.filter(|race| stage != Some(race.stage))?;
        stage = Some(race.stage);
        Some(race)
    };
    let number = |name: &str| html! { th.number role="columnheader" { (name) } };
    let headings = html! {
        th role="columnheader" { "Config" }
        (strips_heading("Time over the baseline's, round by round", &axis))
        (number("Time")) (number("Of the baseline's")) (number("Rounds"))
        @if with_memory { (number("Temporary memory")) }
        th role="columnheader" { "Outcome" }
    };
    let body = html! {
        @for row in &rows {
            @if let Some(race) = begins(row) { (race_heading(&race, columns)) }
            (table_row(operation, row, &axis, with_memory))
        }
        @if !folded.is_empty() { (folded_row(operation, &folded, columns)) }
    };
    let beyond: usize = rows.iter().map(|row| row.strip.beyond(&axis)).sum();
    html! {
        (table(class, &format!("Candidates of {name}"), &headings, &body))
        @if beyond > 0 { p.fine { "Samples outside the axis range, drawn at its edge: " (beyond) "." } }
    }
}

fn sorted_rows(operation: &OperationResult) -> Vec<CandidateRow<'_>> {
    let key = |candidate: &CandidateResult| {
        let status = match candidate.status() {
            CandidateStatus::Measured => 0,
            CandidateStatus::SameProgram => 1,
            CandidateStatus::NotMeasured => 2,
            CandidateStatus::NotCompiled => 3,
            _ => 4,
        };
        let ratio = candidate.times().map(|times| times.ratio);
        let expected = candidate.expected().map(|expected| expected.ratio);
        let race = Reverse(candidate.race.map(|race| race.stage).filter(|_| status == 0));
        ((status, race), ratio.or(expected).unwrap_or(f64::INFINITY))
    };
    let mut candidates: Vec<&CandidateResult> = operation.candidates.iter().collect();
    candidates.sort_by(|one, other| {
        let (one, other) = (key(one), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let row = |candidate| {
        let role = CandidateRole::of(operation, candidate);
        CandidateRow { candidate, role, strip: strip_of(candidate, role) }
    };
    candidates.into_iter().map(row).collect()
}

fn axis_of(rows: &[CandidateRow<'_>]) -> RatioAxis {
    let times = rows.iter().filter(|row| row.candidate.dropped.is_none()).filter_map(|row| row.candidate.times());
    let ends = times.flat_map(|times| [times.interval.low, times.interval.high]);
    RatioAxis::of(rows.iter().flat_map(|row| row.strip.extent()).chain(ends))
}

/// Draws a heading above the rows of one race, whose times are comparable.
fn race_heading(race: &CandidateRace, columns: usize) -> Markup {
    let what = match race.stage {
        RaceStage::Alone => "Each value alone",
        RaceStage::Pairs => "Two together",
        RaceStage::Triples => "Three together",
        RaceStage::Last => "The last race, which decides",
    };
    html! {
        tr.race role="row" {
            th role="rowheader" scope="rowgroup" colspan=(columns) {
                (what) ": the baseline took " (format_ns(race.baseline_ns)) " in it"
            }
        }
    }
}

/// Draws the candidates without samples of their own in one row, which opens.
fn folded_row(operation: &OperationResult, rows: &[CandidateRow<'_>], columns: usize) -> Markup {
    html! {
        tr.folded role="row" {
            td role="cell" colspan=(columns) {
                details {
                    summary { (counted(rows.len(), "config")) ": another candidate's program, so not measured" }
                    ul {
                        @for CandidateRow { candidate, role, .. } in rows {
                            li {
                                code { (differences(&candidate.config, &operation.baseline.config).0) } ": "
                                (outcome(operation, candidate, *role))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn strip_of(candidate: &CandidateResult, role: CandidateRole) -> SampleStrip {
    match role {
        CandidateRole { is_baseline: true, .. } => SampleStrip::of_baseline(&candidate.samples),
        CandidateRole { is_best: true, .. } => SampleStrip::of_candidate(candidate, "best"),
        _ if candidate.tied_with_best => SampleStrip::of_candidate(candidate, "tied"),
        _ => SampleStrip::of_candidate(candidate, "other"),
    }
}

fn table_row(operation: &OperationResult, row: &CandidateRow<'_>, axis: &RatioAxis, with_memory: bool) -> Markup {
    let CandidateRow { candidate, role, strip } = row;
    let class = match role {
        CandidateRole { is_best: true, .. } => Some("best"),
        CandidateRole { is_baseline: true, .. } => Some("baseline"),
        _ => None,
    };
    let config = match role.is_baseline {
        true => brief_config(&operation.call, &candidate.config),
        false => differences(&candidate.config, &operation.baseline.config).0,
    };
    let times = candidate.times();
    let [median_ns, ratio] = [times.map(|times| times.median_ns), times.map(|times| times.ratio)];
    let interval = times
        .map(|times| times.interval)
        .filter(|_| !role.is_baseline)
        .map(|interval| format!("{} at {}", format_interval(interval, 3), format_confidence(interval.confidence)));
    let rounds = times.map_or(0, |times| times.rounds).to_string();
    html! {
        tr role="row" class=[class] {
            th role="rowheader" scope="row" { code { (config) } }
            td.strips role="cell" { (drawing(candidate, strip, axis)) }
            (number_cell("time", median_ns, &dash(median_ns, format_ns), None))
            (number_cell("ratio", ratio, &dash(ratio, |ratio| format!("{ratio:.3}")), interval.as_deref()))
            (number_cell("rounds", None, &rounds, None))
            @if with_memory { (number_cell("memory", None, &dash(candidate.temporary_bytes, format_bytes), None)) }
            td.outcome role="cell" { (outcome(operation, candidate, *role)) }
        }
    }
}

/// Draws a candidate's strip, or why there is none.
fn drawing(candidate: &CandidateResult, strip: &SampleStrip, axis: &RatioAxis) -> Markup {
    match candidate.failure() {
        Some(failure) => {
            html! { p.failure { strong { (failure.kind.to_string()) } " " (prose(&failure.message)) } }
        }
        None if candidate.status() == CandidateStatus::Measured => strip.draw(axis),
        None => html! { span.nothing { "not drawn: it has no samples" } },
    }
}

/// Returns the result of a candidate, in words, and how its outputs were accepted if that took more than a tolerance.
fn outcome(operation: &OperationResult, candidate: &CandidateResult, role: CandidateRole) -> String {
    let place = place(operation, candidate, role);
    match candidate.compared_by {
        Some(ComparedBy::F64) => format!("{place}; its outputs are as good as the baseline's in f64"),
        Some(ComparedBy::Outliers) => format!("{place}; its outputs are the baseline's but for outliers"),
        _ => place,
    }
}

/// Returns where a candidate stands, in words.
fn place(operation: &OperationResult, candidate: &CandidateResult, role: CandidateRole) -> String {
    let mut words: Vec<String> = Vec::new();
    match role {
        CandidateRole { is_best: true, is_baseline: true } => words.push("baseline: keep it".to_owned()),
        CandidateRole { is_best: true, .. } => words.push("use this".to_owned()),
        CandidateRole { is_baseline: true, .. } => words.push("baseline".to_owned()),
        _ if candidate.tied_with_best => words.push(tied(operation, candidate)),
        _ => {}
    }
    match candidate.status() {
        CandidateStatus::SameProgram => words.push(twin_of(operation, candidate)),
        CandidateStatus::Failed => words.push("failed".to_owned()),
        CandidateStatus::NotMeasured if candidate.samples.is_empty() => words.push("not measured".to_owned()),
        CandidateStatus::NotMeasured => words.push("too few samples".to_owned()),
        CandidateStatus::NotCompiled => {
            words.extend(candidate.expected().map(|expected| format!("not compiled: {}", expected_text(expected))));
        }
        _ => {}
    }
    match candidate.dropped {
        Some(DropReason::Slower) => words.push("significantly slower than the best".to_owned()),
        Some(DropReason::CutOff) => words.push("twice the best's time or more".to_owned()),
        Some(DropReason::NoTime) => words.push("no usable times".to_owned()),
        None => {}
    }
    match (candidate.times().map(|times| times.ratio), words.is_empty()) {
        (Some(ratio), true) if ratio < 1.0 => format!("{} as fast as the baseline", format_ratio(1.0 / ratio)),
        (_, true) => "not faster".to_owned(),
        _ => words.join("; "),
    }
}

/// Says that a candidate is as good as the best one, and why if its interval seems to say otherwise.
fn tied(operation: &OperationResult, candidate: &CandidateResult) -> String {
    let keeps = operation.best.as_ref().is_some_and(|best| best.config == operation.baseline.config);
    let is_apart = candidate.times().is_some_and(|times| times.interval.low > 1.0 || times.interval.high < 1.0);
    match operation.resolution.filter(|_| keeps && is_apart) {
        Some(floor) => format!("tied with the best: within the noise floor of {}", format_part(floor)),
        None => "tied with the best".to_owned(),
    }
}

/// Says which candidate's program it shares, judging by the figures.
fn twin_of(operation: &OperationResult, candidate: &CandidateResult) -> String {
    let is_twin =
        |other: &&CandidateResult| other.status() == CandidateStatus::Measured && other.times() == candidate.times();
    // the baseline's own row may have the numbers of a later race
    if candidate.race.zip(candidate.times()).is_some_and(|(race, times)| race.baseline_ns == times.median_ns) {
        return "same program as the baseline".to_owned();
    }
    let mut twins = operation.candidates.iter().filter(is_twin);
    match (twins.next(), twins.next()) {
        (Some(twin), None) if twin.config == operation.baseline.config => "same program as the baseline".to_owned(),
        (Some(twin), None) => {
            format!("same program as {}", differences(&twin.config, &operation.baseline.config).0)
        }
        _ => "same program as another".to_owned(),
    }
}
