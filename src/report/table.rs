//! The table at the end of a run.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::counted::counted;
use crate::failure::Failure;
use crate::hlo::Evidence;
use crate::tune::{AutotuningResult, CandidateResult, ConfigTime, OperationResult, ProfiledStep, Searched, Status};

use super::differences::differences;
use super::figures::{expected_text, format_interval};
use super::grid::dash;
use super::naming::{brief_config, name_with_direction};
use super::processes::{load_line, processes_line, rivals_line};
use super::roofline::{roof_line, temporary_memory, work_line};
use super::time::time_line;
use super::{Document, Grid, format_ns, format_part, format_ratio, line};

/// Minimum drift that is reported.
const WORTH_A_LINE: f64 = 0.05;

/// The table of a run.
impl fmt::Display for AutotuningResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Vec::new();
        self.write_table(&mut table).map_err(|_| fmt::Error)?;
        f.write_str(String::from_utf8_lossy(&table).trim_end())
    }
}

impl Document for &AutotuningResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    /// Writes operations × (baseline, best, speed-up, interval, evidence, status), with the winning config below each.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        // shares of a step are shown only if a profile was given
        let with_share = self.step.is_some();
        let share = |share: String| with_share.then_some(share);
        let headings = ["operation", ">share", ">baseline", ">best", ">speed-up", "interval", "evidence", "status"];
        let headings: Vec<&str> = headings.into_iter().filter(|name| with_share || *name != ">share").collect();
        let mut grid = Grid::new(&headings);
        for operation in &self.operations {
            let time = |config: Option<&ConfigTime>| dash(config.and_then(|config| config.median_ns), format_ns);
            let cells = [
                time(Some(&operation.baseline)),
                time(operation.best.as_ref()),
                dash(operation.speed_up, format_ratio),
                dash(operation.speed_up_interval, |interval| format_interval(interval, 2)),
                operation.evidence.to_string(),
                operation.status.name().to_owned(),
            ];
            grid.row(
                [name_with_direction(operation)]
                    .into_iter()
                    .chain(share(format_part(operation.share.unwrap_or(0.0))))
                    .chain(cells),
            );
            for line in details(operation) {
                grid.line(&line);
            }
        }
        for missed in &self.missed {
            let cells = ["—", "—", "—", "—", &missed.evidence.to_string(), "no match"].map(str::to_owned);
            grid.row([missed.label.to_string()].into_iter().chain(share("—".to_owned())).chain(cells));
            grid.line(&missed.reason);
        }
        grid.write_or(out, "nothing to tune")?;
        let has_roof = |time: &ConfigTime| time.work.as_ref().is_some_and(|work| work.roofline.is_some());
        if let Some(peaks) = self.peaks.as_ref().filter(|_| self.operations.iter().any(|one| has_roof(&one.baseline))) {
            line!(out, "{}", roof_line(peaks))?;
        }
        match &self.step {
            Some(step) => line!(out, "{}", step_line(step)),
            None => Ok(()),
        }
    }
}

/// Returns the total gain, in one line.
fn step_line(step: &ProfiledStep) -> String {
    format!(
        "expected: {} less time in the step of `{}` ({} to {} by the intervals); {} of its {} is decided here, {} is \
         labelled",
        format_part(step.expected_gain),
        step.profile,
        format_part(step.expected_gain_low),
        format_part(step.expected_gain_high),
        format_part(step.decided),
        format_ns(step.modules_ns),
        format_part(step.labelled),
    )
}

/// Returns the failures, each reason once, without that of the operation itself.
fn failures(operation: &OperationResult) -> impl Iterator<Item = String> {
    let mut by_reason: Vec<(&Failure, &CandidateResult, usize)> = Vec::new();
    for candidate in &operation.candidates {
        let Some(failure) = candidate.failure() else { continue };
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

/// Says how many configs were skipped, and the most promising of them.
fn not_compiled(operation: &OperationResult) -> Option<String> {
    let left = || operation.candidates.iter().filter_map(|candidate| Some((candidate, candidate.expected()?)));
    let (likeliest, expected) = left().min_by(|(_, a), (_, b)| a.low.total_cmp(&b.low))?;
    let (count, all) = (left().count(), counted(operation.candidates.len(), "config"));
    let (changed, _) = differences(&likeliest.config, &operation.baseline.config);
    let chance = format_part(operation.untried_chance?);
    let expected = expected_text(expected);
    Some(format!(
        "not compiled: {count} of {all}, the most promising {changed}: {expected} of the baseline's time; one is \
         better with a probability of {chance} (`--thorough` compiles all)"
    ))
}

fn details(operation: &OperationResult) -> Vec<String> {
    let mut lines = Vec::new();
    if operation.evidence != Evidence::Exact {
        lines.push(format!("matched {}", operation.how));
    }
    if let Some(best) = &operation.best {
        if best.config == operation.baseline.config {
            lines.push(format!("keep {}", brief_config(&operation.call, &best.config)));
        } else {
            let (new, old) = differences(&best.config, &operation.baseline.config);
            lines.push(format!("use {new} (baseline {old})"));
        }
        let others = operation.tie_set.iter().filter(|config| **config != best.config).count();
        if others > 0 {
            let within =
                operation.resolution.map_or_else(String::new, |part| format!(", within {}", format_part(part)));
            let more = operation.more_time.map_or_else(String::new, |more| format!(": {more}"));
            lines.push(format!("tied with {}{within}{more}", counted(others, "other config")));
        }
    }
    lines.extend(processes_line(operation));
    lines.extend(rivals_line(operation));
    lines.extend(load_line(operation));
    lines.extend(work_line(operation));
    lines.extend(temporary_memory(operation));
    lines.extend(operation.search.as_ref().map(Searched::to_line));
    lines.extend(not_compiled(operation));
    match operation.rounds_set_aside {
        0 => {}
        1 => lines.push("one disturbed round was measured again".to_owned()),
        more => lines.push(format!("{more} disturbed rounds were measured again")),
    }
    if let Some(drift) = operation.drift.filter(|drift| drift.abs() >= WORTH_A_LINE) {
        let how = if drift > 0.0 { "slower" } else { "faster" };
        lines.push(format!(
            "the machine became {} {how} meanwhile; ratios are formed within rounds",
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

/// Returns the last lines: where the time went, what was measured and where the configs are.
pub fn result_lines(result: &AutotuningResult, folder: Option<&Path>) -> Vec<String> {
    let rounds: u32 = result.operations.iter().map(|operation| operation.rounds_measured).sum();
    let decided = result.operations.iter().filter(|operation| operation.status.is_decided()).count();
    let searches = result.operations.iter().filter_map(|operation| operation.search.as_ref());
    let tried: usize = searches.map(|search| search.evaluations - search.reused).sum();
    let what = match (rounds, decided) {
        _ if tried > 0 => format!("{} tried, {} measured", counted(tried, "config"), counted(rounds, "round")),
        (0, 0) => "nothing was measured".to_owned(),
        (0, _) => "nothing new, nothing measured; `--force` measures again".to_owned(),
        _ => format!("{} measured", counted(rounds, "round")),
    };
    let place = folder.map_or_else(|| "not kept".to_owned(), |folder| format!("in `{}`", folder.display()));
    let time_breakdown = time_line(result.operations.iter().map(|operation| operation.time_breakdown));
    // what is no entry is decided all the same
    let kept = result.entries.len();
    let last = format!("{kept} of {} {place}; {what}", counted(result.operations.len(), "best config"));
    time_breakdown.into_iter().chain([last]).collect()
}
