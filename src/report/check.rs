//! A regression check, and its last lines.

use std::io::{self, Write};

use serde::Serialize;

use crate::gate::{CheckResult, CheckVerdict};

use super::figures::format_interval;
use super::grid::{cells, dash};
use super::time::time_line;
use super::{Document, Grid, format_ns};

impl Document for &CheckResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        // the verdict first: no line begins with a name, which a CI service could mistake for a command
        let mut grid = Grid::new(&["verdict", "operation", ">baseline", ">cached", ">was", ">ratio", "interval"]);
        for operation in &self.operations {
            let number = |ratio: Option<f64>| dash(ratio, |ratio| format!("{ratio:.3}"));
            grid.row(cells![
                operation.verdict.name(),
                format!("{} ({})", operation.call, operation.direction),
                dash(operation.baseline_ns, format_ns),
                dash(operation.config_ns, format_ns),
                number(operation.entry.as_ref().and_then(|entry| entry.ratio)),
                number(operation.ratio),
                dash(operation.interval, |interval| format_interval(interval, 3))
            ]);
            if operation.verdict != CheckVerdict::Holds || operation.ratio.is_none() {
                grid.line(&operation.reason);
            }
            for line in operation.stale.iter().chain(&operation.flags) {
                grid.line(&format!("note: {line}"));
            }
        }
        for missed in &self.missed {
            let name = missed.label.to_string();
            let cells = ["not recorded", &name, "—", "—", "—", "—", "—"];
            grid.row(cells.map(str::to_owned));
            grid.line(&format!("note: {}", missed.reason));
        }
        grid.write_or(out, "nothing to check")
    }
}

/// Returns the last lines: where the time went, and how many operations got which verdict.
pub fn check_lines(result: &CheckResult) -> Vec<String> {
    let mut lines: Vec<String> =
        time_line(result.operations.iter().map(|operation| operation.time_breakdown)).into_iter().collect();
    let counts = CheckVerdict::ALL.into_iter().filter_map(|verdict| {
        let count = result.operations.iter().filter(|operation| operation.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    let missed = (!result.missed.is_empty()).then(|| format!("{} not recorded", result.missed.len()));
    let counts: Vec<String> = counts.chain(missed).collect();
    let what = if counts.is_empty() { "nothing to check".to_owned() } else { counts.join(", ") };
    let needed = result.e_value_needed;
    lines.push(format!(
        "{what}; a regression counts from an e-value of {needed:.0}, in three worker processes at least (docs/fleet.md)"
    ));
    lines
}
