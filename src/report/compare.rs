//! Programs side by side.

use std::io::{self, Write};

use serde::Serialize;

use crate::array::ComparedBy;
use crate::compare::{CompareResult, ContestantResult, Outputs, SelfNoise};
use crate::counted::counted;
use crate::measured_by::TOOL;

use super::document::versioned;
use super::figures::format_interval;
use super::grid::{cells, dash};
use super::{Document, Grid, format_ns, format_part, line, write_notes};

/// A comparison with the names of its timers, by number.
#[derive(Debug, Serialize)]
pub struct ComparedPrograms<'a> {
    tool: &'static str,
    timers: &'a [String],
    #[serde(flatten)]
    result: &'a CompareResult,
}

impl<'a> ComparedPrograms<'a> {
    /// Joins a comparison and the names of its timers.
    pub fn new(result: &'a CompareResult, timers: &'a [String]) -> Self {
        Self { tool: TOOL, timers, result }
    }

    fn row(&self, grid: &mut Grid, place: usize, contestant: &ContestantResult) {
        let verdict = match (contestant.relation, contestant.outputs) {
            _ if place == 0 => "first",
            (_, Outputs::Different) => "other outputs",
            _ if contestant.failure.is_some() => "failed",
            (Some(relation), _) => relation.name(),
            (None, _) => "not measured",
        };
        let outputs = match contestant.outputs {
            Outputs::Reference => "reference".to_owned(),
            Outputs::Equal { max_error: 0.0, .. } => "equal".to_owned(),
            Outputs::Equal { max_error, compared_by } => format!("{} {max_error:.2e}", agreement(compared_by)),
            Outputs::Different => "different".to_owned(),
            Outputs::NotCompared => "—".to_owned(),
        };
        grid.row(cells![
            verdict,
            format!("{} {}", place + 1, contestant.name),
            dash(contestant.median_ns, format_ns),
            dash(contestant.ratio, ratio),
            dash(contestant.interval, |held| format_interval(held, 3)),
            outputs
        ]);
        if !contestant.options.is_empty() {
            let options = contestant.options.iter().map(|(name, value)| format!("{name}={value}"));
            grid.line(&format!("with {}", options.collect::<Vec<_>>().join(" ")));
        }
        if let [_, _, ..] = self.timers {
            grid.line(&format!("by {}", self.timers.get(contestant.timer).map_or("another timer", String::as_str)));
        }
        if let Some(other) = contestant.same_executable {
            grid.line(&format!("same executable as {}", other + 1));
        }
        if let Some(failure) = &contestant.failure {
            grid.line(&failure.to_string());
        }
    }

    fn noise_row(grid: &mut Grid, noise: &SelfNoise) {
        let cell = "1 once more, compiled and loaded separately";
        grid.row(cells![
            "A/A",
            cell,
            "—",
            dash(noise.ratio, ratio),
            dash(noise.interval, |held| format_interval(held, 3)),
            ""
        ]);
        if noise.same_executable == Some(false) {
            grid.line("its executable has other bytes: the compiler is not deterministic");
        }
        if let Some(failure) = &noise.failure {
            grid.line(&format!("it failed, so the effect of noise alone is unknown: {failure}"));
        }
    }
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}")
}

impl Document for ComparedPrograms<'_> {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        // the verdict first: no line begins with a name, which a CI service could mistake for a command
        let mut grid = Grid::new(&["verdict", "contestant", ">time", ">ratio", "interval", "outputs"]);
        for (place, contestant) in self.result.contestants.iter().enumerate() {
            self.row(&mut grid, place, contestant);
        }
        if let Some(noise) = &self.result.noise {
            Self::noise_row(&mut grid, noise);
        }
        grid.write(out)?;
        let CompareResult { device, measured_by, rounds, rounds_kept, noise, is_settled, notes, .. } = self.result;
        let kept =
            if *rounds_kept > 0 { format!(", {rounds_kept} of them from the sample log") } else { String::new() };
        let (timer, metric) = (&measured_by.timer, &measured_by.metric);
        let identity = &device.identity;
        writeln!(out)?;
        line!(out, "{}{kept} on {identity} with `{timer}` ({metric})", counted(*rounds, "round"))?;
        if let Some(bound) = noise.as_ref().and_then(|noise| noise.bound) {
            line!(out, "by noise alone the first differs from itself by up to {}", format_part(bound))?;
        }
        if !is_settled {
            let more = "not settled: `--budget TIME` or `--rounds N` measure more, after what is kept";
            line!(out, "{more}")?;
        }
        write_notes(out, notes)
    }
}

/// How outputs agree that are not equal in every bit.
fn agreement(by: ComparedBy) -> &'static str {
    match by {
        ComparedBy::F64 => "as good in f64, within",
        ComparedBy::Outliers => "equal but for outliers, within",
        _ => "equal within",
    }
}
