//! The table at the end of a run.

use std::io::{self, Write};

use crate::call::Direction;
use crate::failure::Failure;
use crate::hlo::Evidence;
use crate::tune::{
    AutotuningResult, CandidateResult, CandidateStatus, ConfigTime, OperationResult, ProfiledStep, Searched, Status,
};

use super::differences::differences;
use super::{Grid, format_ns, format_part, format_ratio, write_line};

/// A drift from which on it is worth a line.
const WORTH_A_LINE: f64 = 0.05;

/// Writes operations × (baseline, best, speed-up, interval, evidence, status), with the winning config below each.
pub fn write_result(out: &mut dyn Write, result: &AutotuningResult) -> io::Result<()> {
    // the shares of a step stand only where a profile of one was given
    let with_share = result.step.is_some();
    let share = |share: String| with_share.then_some(share);
    let headings = ["operation", ">share", ">baseline", ">best", ">speed-up", "interval", "evidence", "status"];
    let headings: Vec<&str> = headings.into_iter().filter(|name| with_share || *name != ">share").collect();
    let mut grid = Grid::new(&headings);
    for operation in &result.operations {
        let time = |config: Option<&ConfigTime>| {
            config.and_then(|config| config.median_ns).map_or_else(|| "—".to_owned(), format_ns)
        };
        let direction = if operation.direction == Direction::Forward { "" } else { " (with vjp)" };
        let name = format!("{}{direction}", operation.call);
        let cells = [
            time(Some(&operation.baseline)),
            time(operation.best.as_ref()),
            operation.speed_up.map_or_else(|| "—".to_owned(), format_ratio),
            operation
                .speed_up_interval
                .map_or_else(|| "—".to_owned(), |interval| format!("{:.2}–{:.2}", interval.low, interval.high)),
            operation.evidence.to_string(),
            operation.status.name().to_owned(),
        ];
        grid.row([name].into_iter().chain(share(format_part(operation.share.unwrap_or(0.0)))).chain(cells));
        for line in details(operation) {
            grid.line(&line);
        }
    }
    for missed in &result.missed {
        let dash = || "—".to_owned();
        let cells = [dash(), dash(), dash(), dash(), missed.evidence.to_string(), "no match".to_owned()];
        grid.row([missed.label.to_string()].into_iter().chain(share(dash())).chain(cells));
        grid.line(&missed.reason);
    }
    if grid.is_empty() {
        writeln!(out, "nothing to tune")?;
    } else {
        grid.write(out)?;
    }
    match &result.step {
        Some(step) => write_line(out, format_args!("{}", step_line(step))),
        None => Ok(()),
    }
}

/// What is gained in all, in one line.
fn step_line(step: &ProfiledStep) -> String {
    format!(
        "expected: {} less time in the step of `{}` ({} to {} by the intervals); {} of its {} is decided here, {} is labelled",
        format_part(step.expected_gain),
        step.profile,
        format_part(step.expected_gain_low),
        format_part(step.expected_gain_high),
        format_part(step.decided),
        format_ns(step.modules_ns),
        format_part(step.labelled),
    )
}

/// What failed, each reason once, and none that the operation's own has told.
fn failures(operation: &OperationResult) -> impl Iterator<Item = String> {
    let mut by_reason: Vec<(&Failure, &CandidateResult, usize)> = Vec::new();
    for candidate in operation.candidates.iter().filter(|candidate| candidate.status == CandidateStatus::Failed) {
        let Some(failure) = &candidate.failure else { continue };
        match by_reason.iter_mut().find(|(known, ..)| *known == failure) {
            Some((.., count)) => *count += 1,
            None => by_reason.push((failure, candidate, 1)),
        }
    }
    by_reason.into_iter().filter(|(failure, ..)| !operation.reason.contains(&failure.message)).map(
        |(failure, first, count)| {
            let (changed, _) = differences(&first.config, &operation.baseline.config);
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            format!("failed {changed}{more}: {failure}")
        },
    )
}

fn details(operation: &OperationResult) -> Vec<String> {
    let mut lines = Vec::new();
    if operation.evidence != Evidence::Exact {
        lines.push(format!("matched {}", operation.how));
    }
    if let Some(best) = &operation.best {
        if best.config == operation.baseline.config {
            lines.push(format!("keep {}", best.config.to_brief()));
        } else {
            let (new, old) = differences(&best.config, &operation.baseline.config);
            lines.push(format!("use {new} (baseline {old})"));
        }
        let others = operation.tie_set.iter().filter(|config| **config != best.config).count();
        if others > 0 {
            let within =
                operation.resolution.map_or_else(String::new, |part| format!(", within {}", format_part(part)));
            lines.push(format!("tied with {others} other config{}{within}", if others == 1 { "" } else { "s" }));
        }
    }
    lines.extend(operation.search.as_ref().map(Searched::to_line));
    match operation.rounds_set_aside {
        0 => {}
        1 => lines.push("one disturbed round was measured again".to_owned()),
        more => lines.push(format!("{more} disturbed rounds were measured again")),
    }
    if let Some(drift) = operation.drift.filter(|drift| drift.abs() >= WORTH_A_LINE) {
        let how = if drift > 0.0 { "slower" } else { "faster" };
        lines.push(format!(
            "the machine became {} {how} meanwhile; ratios are taken inside rounds",
            format_part(drift.abs())
        ));
    }
    if !operation.status.is_decided() || operation.status == Status::BaselineKept {
        lines.push(operation.reason.clone());
    }
    lines.extend(failures(operation));
    lines.extend(operation.flags.iter().map(|flag| format!("note: {flag}")));
    lines
}
