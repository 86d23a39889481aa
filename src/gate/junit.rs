//! The result as JUnit XML: one suite, one case per operation.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::{CheckResult, CheckVerdict, OperationCheck};
use crate::junit::{Case, CaseOutcome, Suite, write_suites};

/// Writes the whole document. A missing entry is skipped if that is allowed, and otherwise an error.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_junit(out: &mut dyn Write, result: &CheckResult, allow_missing: bool) -> io::Result<()> {
    let missing = || if allow_missing { CaseOutcome::Skipped } else { CaseOutcome::Error };
    let mut cases: Vec<Case<'_>> = result.operations.iter().map(|operation| case(operation, &missing)).collect();
    cases.extend(result.missed.iter().map(|missed| Case {
        class: &missed.label.op_id,
        name: missed.label.to_string(),
        seconds: 0.0,
        outcome: missing(),
        kind: "not recorded",
        message: &missed.reason,
        text: String::new(),
    }));
    let suite = Suite { name: result.device.identity.to_string(), cases };
    write_suites(out, "check", &[suite])
}

fn case<'a>(operation: &'a OperationCheck, missing: &dyn Fn() -> CaseOutcome) -> Case<'a> {
    let mut text = String::new();
    if let Some(entry) = &operation.entry {
        // writing to a string never fails
        let _ = write!(text, "cached: {}", entry.config);
    }
    for line in &operation.stale {
        let _ = write!(text, "\n{line}");
    }
    Case {
        class: &operation.call.op_id,
        name: format!("{} ({})", operation.call, operation.direction),
        seconds: operation.time_breakdown.total().as_secs_f64(),
        outcome: match operation.verdict {
            verdict if verdict.is_alarm() => CaseOutcome::Failure,
            CheckVerdict::Missing => missing(),
            verdict if verdict.is_unchecked() => CaseOutcome::Error,
            _ => CaseOutcome::Passed,
        },
        kind: operation.verdict.name(),
        message: &operation.reason,
        text,
    }
}
