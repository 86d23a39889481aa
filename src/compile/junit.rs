//! The result as JUnit XML: a suite for each target, a case for each call, or for the module.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::result::{CompileResult, CompiledTarget};
use crate::counted::counted;
use crate::junit::{Case, CaseOutcome, Suite, write_suites};
use crate::timer::pjrt::CompileOutcome;

/// Writes the whole document. A regression is a failure, an undecided case an error, and a refusal neither. `module` is
/// the name of the module itself.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_compile_junit(out: &mut dyn Write, result: &CompileResult, module: &str) -> io::Result<()> {
    let suites: Vec<Suite<'_>> = result.targets.iter().map(|target| suite(target, module)).collect();
    write_suites(out, "compile", &suites)
}

fn suite<'a>(target: &'a CompiledTarget, module: &str) -> Suite<'a> {
    let calls = target
        .calls
        .iter()
        .map(|call| case(target, &call.call.op_id, call.name(), &call.outcomes().collect::<Vec<_>>()));
    let module = target.module.iter().map(|outcome| case(target, "module", module.to_owned(), &[outcome]));
    Suite { name: format!("{}: {}", target.target, target.device.identity), cases: calls.chain(module).collect() }
}

fn case<'a>(target: &'a CompiledTarget, class: &'a str, name: String, outcomes: &[&'a CompileOutcome]) -> Case<'a> {
    let regressions = target.baseline.iter().flat_map(|comparison| &comparison.regressions);
    let regressions: Vec<String> =
        regressions.filter(|regression| regression.operation() == name).map(ToString::to_string).collect();
    let failed = outcomes.iter().find_map(|outcome| match outcome {
        CompileOutcome::Failed { reason } => Some(reason.as_str()),
        _ => None,
    });
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, CompileOutcome::Refused { .. })).count();
    let mut text = format!("{}, {refused} refused", counted(outcomes.len(), "program"));
    for line in &regressions {
        // writing to a string never fails
        let _ = write!(text, "\n{line}");
    }
    let (outcome, kind, message) = match (regressions.is_empty(), failed) {
        (false, _) => (CaseOutcome::Failure, "regressed", "worse than the baseline"),
        (true, Some(reason)) => (CaseOutcome::Error, "not decided", reason),
        (true, None) => (CaseOutcome::Passed, "compiled", ""),
    };
    let seconds = outcomes.iter().map(|outcome| match outcome {
        CompileOutcome::Compiled { seconds, reused: false, .. }
        | CompileOutcome::Refused { seconds, reused: false, .. } => *seconds,
        _ => 0.0,
    });
    Case { class, name, seconds: seconds.sum(), outcome, kind, message, text }
}
