//! The result as JUnit XML: one suite, one case per call.

use std::io::{self, Write};

use super::{UpgradeResult, UpgradeVerdict, UpgradedCall};
use crate::junit::{Case, CaseOutcome, Suite, write_suites};

/// Writes the whole document. A call that is undecided passes: nobody knows of anything to do.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_junit(out: &mut dyn Write, result: &UpgradeResult) -> io::Result<()> {
    let suite = Suite {
        name: format!("{} to {}", result.old.name, result.new.name),
        cases: result.calls.iter().map(case).collect(),
    };
    write_suites(out, "upgrade", &[suite])
}

fn case(call: &UpgradedCall) -> Case<'_> {
    let best = call.best.as_ref().map(|best| format!("\nbest with the new compiler: {}", best.config));
    Case {
        class: &call.call.op_id,
        name: call.name(),
        seconds: 0.0,
        outcome: match call.verdict {
            verdict if verdict.is_alarm() => CaseOutcome::Failure,
            // it does not run under the old compiler either, or was not measured
            UpgradeVerdict::Undecided if call.change.is_none() => CaseOutcome::Error,
            _ => CaseOutcome::Passed,
        },
        kind: call.verdict.name(),
        message: &call.reason,
        text: format!("in force: {}{}", call.in_force.config, best.unwrap_or_default()),
    }
}
