//! What a change of the compiler does to cached configs, and the last line about it.

use std::io::{self, Write};

use serde::Serialize;

use crate::upgrade::{InForce, UpgradeResult, UpgradeVerdict, UpgradedCall};

use super::differences::differences;
use super::figures::format_interval;
use super::grid::{cells, dash};
use super::naming::brief_config;
use super::{Document, Grid, format_ns};

impl Document for &UpgradeResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        // the verdict first: no line begins with a name, which a CI service could mistake for a command
        let mut grid = Grid::new(&["verdict", "operation", ">old", ">new", ">new/old", "interval", ">best/old"]);
        for call in &self.calls {
            let change = call.change.as_ref();
            grid.row(cells![
                call.verdict.name(),
                call.name(),
                dash(call.old_ns, format_ns),
                dash(call.new_ns, format_ns),
                dash(change, |change| format!("{:.3}", change.ratio)),
                dash(change, |change| format_interval(change.interval, 3)),
                dash(call.best.as_ref(), |best| format!("{:.3}", best.to_old.ratio))
            ]);
            details(call).iter().for_each(|line| grid.line(line));
        }
        for missed in &self.missed {
            let name = missed.label.to_string();
            let cells = ["not recorded", &name, "—", "—", "—", "—", "—"];
            grid.row(cells.map(str::to_owned));
            grid.line(&format!("note: {}", missed.reason));
        }
        grid.write_or(out, "no call")
    }
}

/// Returns why a config does not simply hold, and the configs if somebody has to act.
fn details(call: &UpgradedCall) -> Vec<String> {
    if matches!(call.verdict, UpgradeVerdict::Holds | UpgradeVerdict::Improved) {
        return Vec::new();
    }
    let mut lines = vec![call.reason.clone()];
    if call.verdict.is_alarm() {
        let in_force = &call.in_force;
        let (best, own) = match &call.best {
            Some(best) => differences(&best.config, &in_force.config),
            None => (String::new(), brief_config(&call.call, &in_force.config)),
        };
        lines.push(format!("in force{}: {own}", origin(in_force)));
        lines.extend(call.best.as_ref().map(|_| format!("best with the new compiler: {best}")));
    }
    lines
}

/// Says that a config is in force because nothing is cached, if so.
pub(super) fn origin(in_force: &InForce) -> &'static str {
    if in_force.is_cached { "" } else { " (the baseline)" }
}

/// Returns how many calls got which verdict, the worst first: `1 retune, 2 holds`.
pub(super) fn counts_of_verdicts(result: &UpgradeResult) -> String {
    let counts = UpgradeVerdict::ALL.into_iter().filter_map(|verdict| {
        let count = result.calls.iter().filter(|call| call.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// Returns the last lines: from which compiler to which, and how many calls got which verdict.
pub fn upgrade_lines(result: &UpgradeResult) -> Vec<String> {
    let what = match result.calls.is_empty() {
        true => "no call measured".to_owned(),
        false => counts_of_verdicts(result),
    };
    let [old, new] = [&result.old, &result.new].map(|side| side.compiler());
    vec![format!(
        "from {old} to {new}: {what}; a change counts from {:.0} % (docs/upgrade.md)",
        100.0 * result.min_difference
    )]
}
