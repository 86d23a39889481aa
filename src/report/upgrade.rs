//! What a change of the compiler does to cached configs, and the last line about it.

use std::io::{self, Write};

use serde::Serialize;

use crate::upgrade::{UpgradeResult, UpgradeVerdict};

use super::figures::format_interval;
use super::grid::{cells, dash};
use super::{Document, Grid, format_ns};

impl Document for &UpgradeResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let names = ["verdict", "operation", "config", ">old", ">new", ">new/old", "interval", "best", ">to it"];
        let mut grid = Grid::new(&names);
        for call in &self.calls {
            let (change, best) = (call.change.as_ref(), call.best.as_ref());
            grid.row(cells![
                call.verdict.name(),
                call.name(),
                call.in_force.config.to_brief(),
                dash(call.old_ns, format_ns),
                dash(call.new_ns, format_ns),
                dash(change, |change| format!("{:.3}", change.ratio)),
                dash(change, |change| format_interval(change.interval, 3)),
                dash(best, |best| best.config.to_brief()),
                dash(best, |best| format!("{:.3}", best.to_in_force.ratio))
            ]);
            if !matches!(call.verdict, UpgradeVerdict::Holds | UpgradeVerdict::Improved) {
                grid.line(&call.reason);
            }
        }
        for missed in &self.missed {
            let name = missed.label.to_string();
            let cells = ["not recorded", &name, "—", "—", "—", "—", "—", "—", "—"];
            grid.row(cells.map(str::to_owned));
            grid.line(&format!("note: {}", missed.reason));
        }
        grid.write_or(out, "no call")
    }
}

/// Returns the last lines: from which compiler to which, and how many calls got which verdict.
pub fn upgrade_lines(result: &UpgradeResult) -> Vec<String> {
    let counts = UpgradeVerdict::ALL.into_iter().filter_map(|verdict| {
        let count = result.calls.iter().filter(|call| call.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    let counts: Vec<String> = counts.collect();
    let what = if counts.is_empty() { "no call measured".to_owned() } else { counts.join(", ") };
    let [old, new] = [&result.old, &result.new].map(|side| side.compiler());
    vec![format!(
        "from {old} to {new}: {what}; a change counts from {:.0} % (docs/upgrade.md)",
        100.0 * result.min_difference
    )]
}
