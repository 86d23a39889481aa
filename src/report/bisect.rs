//! Which compiler of a list changed each call, and the last line about it.

use std::io::{self, Write};

use serde::Serialize;

use crate::counted::counted;
use crate::upgrade::{BisectOutcome, BisectResult, BisectedCall};

use super::grid::{cells, dash};
use super::{Document, Grid};

impl Document for &BisectResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["verdict", "operation", "last held", "first changed", ">new/old"]);
        for BisectedCall { compared, outcome, held, changed } in &self.calls {
            grid.row(cells![
                compared.verdict.name(),
                compared.name(),
                self.environment(*held),
                dash(*changed, |changed| self.environment(changed).to_owned()),
                dash(compared.ratio, |ratio| format!("{ratio:.3}"))
            ]);
            if *outcome != BisectOutcome::Unchanged {
                grid.line(&compared.reason);
            }
            if *outcome == BisectOutcome::Between {
                grid.line(match self.interrupted {
                    true => "note: the search was ended between these two; the same command goes on",
                    false => "note: between these two, no environment decides it",
                });
            }
        }
        for missed in &self.missed {
            grid.row(["not recorded", &missed.label.to_string(), "—", "—", "—"].map(str::to_owned));
            grid.line(&format!("note: {}", missed.reason));
        }
        grid.write_or(out, "no call")
    }
}

/// Returns the last line: how many comparisons were made, and what they found.
pub fn bisect_line(result: &BisectResult) -> String {
    let changed = result.calls.iter().filter(|call| call.changed.is_some()).count();
    let undecided = result.calls.iter().filter(|call| call.outcome == BisectOutcome::Undecided).count();
    let left_out = result.comparisons.iter().filter(|one| one.failure.is_some()).count();
    format!(
        "{} of {} compared with the first{}: of {}, {changed} changed and {undecided} undecided; a change counts from \
         {:.0} % (docs/bisect.md)",
        result.comparisons.len() - left_out,
        counted(result.environments.len().saturating_sub(1), "environment"),
        if left_out == 0 { String::new() } else { format!(", {left_out} left out") },
        counted(result.calls.len(), "call"),
        100.0 * result.min_difference
    )
}
