//! The candidates of one operation, one per row, each with its strip.

use std::cmp::Reverse;
use std::io::{self, Write};

use crate::counted::counted;
use crate::decision::DropReason;
use crate::report::differences::differences;
use crate::report::figures::{expected_text, format_confidence};
use crate::report::naming::brief_config;
use crate::report::{format_bytes, format_ns, format_part, format_ratio};
use crate::tune::{CandidateRace, CandidateResult, CandidateStatus, OperationResult, RaceStage};

use super::axis::Axis;
use super::escape::{Prose, Text};
use super::strip::Strip;

/// A candidate's role in its operation.
#[derive(Clone, Copy, PartialEq)]
struct CandidateRole {
    is_best: bool,
    is_baseline: bool,
}

/// Writes the table of an operation's candidates, the fastest first and those without a time last.
pub(super) fn write_candidates(operation: &OperationResult, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut rows: Vec<(&CandidateResult, CandidateRole)> = operation
        .candidates
        .iter()
        .map(|candidate| {
            let is_best = operation.best.as_ref().is_some_and(|best| best.config == candidate.config);
            (candidate, CandidateRole { is_best, is_baseline: candidate.config == operation.baseline.config })
        })
        .collect();
    rows.sort_by(|(a, _), (b, _)| {
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
            (status, race, ratio.or(expected).unwrap_or(f64::INFINITY))
        };
        let (a, b) = (key(a), key(b));
        (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
    });
    let is_folded = |(candidate, role): &(&CandidateResult, CandidateRole)| {
        candidate.status() == CandidateStatus::SameProgram && !role.is_best && !role.is_baseline
    };
    let (folded, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_folded);
    let with_memory = rows.iter().any(|(candidate, _)| candidate.temporary_bytes.is_some());
    let class = if with_memory { "candidates with-memory" } else { "candidates" };
    let memory = if with_memory { "<th role=\"columnheader\" class=\"number\">Temporary memory</th>" } else { "" };
    let strips: Vec<Strip> = rows.iter().map(|(candidate, role)| strip_of(candidate, *role)).collect();
    let intervals = rows.iter().filter(|(candidate, _)| candidate.dropped.is_none());
    let ends = intervals
        .filter_map(|(candidate, _)| candidate.times())
        .flat_map(|times| [times.interval.low, times.interval.high]);
    let axis = Axis::of(strips.iter().flat_map(Strip::extent).chain(ends));
    write!(
        out,
        "<table class=\"{class}\" role=\"table\"><caption class=\"unseen\">Candidates of {}</caption>\
         <thead role=\"rowgroup\"><tr role=\"row\"><th role=\"columnheader\">Config</th>\
         <th role=\"columnheader\" class=\"strips\"><span class=\"unseen\">Time over the baseline's, round by round</span>",
        Text(name)
    )?;
    axis.write(out)?;
    writeln!(
        out,
        "</th><th role=\"columnheader\" class=\"number\">Time</th><th role=\"columnheader\" class=\"number\">Of the baseline's</th>\
         <th role=\"columnheader\" class=\"number\">Rounds</th>{memory}<th role=\"columnheader\">Outcome</th></tr></thead><tbody role=\"rowgroup\">"
    )?;
    let columns = if with_memory { 7 } else { 6 };
    let mut stage = None;
    for ((candidate, role), strip) in rows.iter().zip(&strips) {
        if let Some(race) = candidate.race.filter(|race| stage != Some(race.stage)) {
            stage = Some(race.stage);
            write_race(&race, columns, out)?;
        }
        write_row(operation, candidate, *role, (strip, &axis, with_memory), out)?;
    }
    write_folded(operation, &folded, columns, out)?;
    writeln!(out, "</tbody></table>")?;
    let beyond: usize = strips.iter().map(|strip| strip.beyond(&axis)).sum();
    if beyond > 0 {
        writeln!(out, "<p class=\"fine\">Samples outside the axis range, drawn at its edge: {beyond}.</p>")?;
    }
    Ok(())
}

/// A heading above the rows of one race, whose times are comparable.
fn write_race(race: &CandidateRace, columns: usize, out: &mut dyn Write) -> io::Result<()> {
    let what = match race.stage {
        RaceStage::Alone => "Each value alone",
        RaceStage::Pairs => "Two together",
        RaceStage::Triples => "Three together",
        RaceStage::Last => "The last race, which decides",
    };
    let baseline = format_ns(race.baseline_ns);
    writeln!(
        out,
        "<tr role=\"row\" class=\"race\"><th role=\"rowheader\" scope=\"rowgroup\" colspan=\"{columns}\">{what}: the \
         baseline took {baseline} in it</th></tr>"
    )
}

/// The candidates without samples of their own in one row, which opens.
fn write_folded(
    operation: &OperationResult,
    rows: &[(&CandidateResult, CandidateRole)],
    columns: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<tr role=\"row\" class=\"folded\"><td role=\"cell\" colspan=\"{columns}\"><details><summary>{}: another \
         candidate's program, so not measured</summary><ul>",
        counted(rows.len(), "config")
    )?;
    for (candidate, role) in rows {
        let config = differences(&candidate.config, &operation.baseline.config).0;
        let outcome = outcome(operation, candidate, *role);
        write!(out, "<li><code>{}</code>: {}</li>", Text(&config), Text(&outcome))?;
    }
    writeln!(out, "</ul></details></td></tr>")
}

fn strip_of(candidate: &CandidateResult, role: CandidateRole) -> Strip {
    match role {
        CandidateRole { is_baseline: true, .. } => Strip::of_baseline(&candidate.samples),
        CandidateRole { is_best: true, .. } => Strip::of_candidate(candidate, "best"),
        _ if candidate.tied_with_best => Strip::of_candidate(candidate, "tied"),
        _ => Strip::of_candidate(candidate, "other"),
    }
}

fn write_row(
    operation: &OperationResult,
    candidate: &CandidateResult,
    role: CandidateRole,
    (strip, axis, with_memory): (&Strip, &Axis, bool),
    out: &mut dyn Write,
) -> io::Result<()> {
    let class = match role {
        CandidateRole { is_best: true, .. } => " class=\"best\"",
        CandidateRole { is_baseline: true, .. } => " class=\"baseline\"",
        _ => "",
    };
    let config = match differences(&candidate.config, &operation.baseline.config).0 {
        _ if role.is_baseline => brief_config(&operation.call, &candidate.config),
        changed => changed,
    };
    write!(
        out,
        "<tr role=\"row\"{class}><th role=\"rowheader\" scope=\"row\"><code>{}</code></th><td role=\"cell\" class=\"strips\">",
        Text(&config)
    )?;
    match candidate.failure() {
        Some(failure) => write!(
            out,
            "<p class=\"failure\"><strong>{}</strong> {}</p>",
            Text(&failure.kind.to_string()),
            Prose(&failure.message)
        )?,
        None if candidate.status() == CandidateStatus::Measured => strip.write(axis, out)?,
        None => write!(out, "<span class=\"nothing\">not drawn: it has no samples</span>")?,
    }
    let times = candidate.times();
    let time = times.map_or_else(|| "—".to_owned(), |times| format_ns(times.median_ns));
    let interval =
        times.map(|times| times.interval).filter(|_| !role.is_baseline).map_or_else(String::new, |interval| {
            let confidence = format_confidence(interval.confidence);
            format!(" <small>{:.3}–{:.3} at {confidence}</small>", interval.low, interval.high)
        });
    let ratio = times.map_or_else(|| "—".to_owned(), |times| format!("{:.3}", times.ratio));
    let memory = match with_memory {
        true => format!(
            "<td role=\"cell\" class=\"number\" data-name=\"memory\">{}</td>",
            candidate.temporary_bytes.map_or_else(|| "—".to_owned(), format_bytes)
        ),
        false => String::new(),
    };
    let sorted = |value: Option<f64>| value.map_or_else(String::new, |value| format!(" data-value=\"{value}\""));
    writeln!(
        out,
        "</td><td role=\"cell\" class=\"number\" data-name=\"time\"{}>{time}</td>\
         <td role=\"cell\" class=\"number\" data-name=\"ratio\"{}>{ratio}{interval}</td>\
         <td role=\"cell\" class=\"number\" data-name=\"rounds\">{}</td>{memory}<td role=\"cell\" class=\"outcome\">{}</td></tr>",
        sorted(times.map(|times| times.median_ns)),
        sorted(times.map(|times| times.ratio)),
        times.map_or(0, |times| times.rounds),
        Text(&outcome(operation, candidate, role))
    )
}

/// The result of a candidate, in words.
fn outcome(operation: &OperationResult, candidate: &CandidateResult, role: CandidateRole) -> String {
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

/// That a candidate is as good as the best one, and why if its interval seems to say otherwise.
fn tied(operation: &OperationResult, candidate: &CandidateResult) -> String {
    let keeps = operation.best.as_ref().is_some_and(|best| best.config == operation.baseline.config);
    let is_apart = candidate.times().is_some_and(|times| times.interval.low > 1.0 || times.interval.high < 1.0);
    match operation.resolution.filter(|_| keeps && is_apart) {
        Some(floor) => format!("tied with the best: within the noise floor of {}", format_part(floor)),
        None => "tied with the best".to_owned(),
    }
}

/// Which candidate's program it shares, judging by the figures.
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
