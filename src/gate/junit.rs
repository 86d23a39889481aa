//! The result as JUnit XML, in the form that Jenkins, GitLab and GitHub's reporters read: one suite, one case an operation.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::{CheckResult, OperationCheck, Verdict};

/// What a case came to.
enum Outcome {
    Passed,
    /// A cached config does harm.
    Failure,
    /// It could not be checked.
    Error,
    Skipped,
}

struct Case<'a> {
    class: &'a str,
    name: String,
    seconds: f64,
    outcome: Outcome,
    /// The verdict's name.
    kind: &'a str,
    message: &'a str,
    text: String,
}

/// Writes the whole document. What is missing is skipped where that is allowed, and else an error.
///
/// # Errors
/// Where `out` cannot be written.
pub fn write_junit(out: &mut dyn Write, result: &CheckResult, allow_missing: bool) -> io::Result<()> {
    let missing = || if allow_missing { Outcome::Skipped } else { Outcome::Error };
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
    let count = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|case| wanted(&case.outcome)).count();
    let failures = count(|outcome| matches!(outcome, Outcome::Failure));
    let errors = count(|outcome| matches!(outcome, Outcome::Error));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped));
    let seconds: f64 = cases.iter().map(|case| case.seconds).sum();
    let counts = format!(
        r#"tests="{}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{seconds:.3}""#,
        cases.len()
    );
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(out, r#"<testsuites name="autotune-lowered check" {counts}>"#)?;
    writeln!(out, r#"  <testsuite name="{}" {counts}>"#, escaped(&result.device.identity.to_string()))?;
    for Case { class, name, seconds, outcome, kind, message, text } in &cases {
        let (class, name) = (escaped(class), escaped(name));
        write!(out, r#"    <testcase classname="{class}" name="{name}" time="{seconds:.3}">"#)?;
        let (kind, message, text) = (escaped(kind), escaped(message), escaped(text));
        match outcome {
            Outcome::Passed => write!(out, "<system-out>{kind}: {message}&#10;{text}</system-out>")?,
            Outcome::Failure => write!(out, r#"<failure type="{kind}" message="{message}">{text}</failure>"#)?,
            Outcome::Error => write!(out, r#"<error type="{kind}" message="{message}">{text}</error>"#)?,
            Outcome::Skipped => write!(out, r#"<skipped message="{message}"/>"#)?,
        }
        writeln!(out, "</testcase>")?;
    }
    writeln!(out, "  </testsuite>\n</testsuites>")
}

fn case<'a>(operation: &'a OperationCheck, missing: &dyn Fn() -> Outcome) -> Case<'a> {
    let mut text = String::new();
    if let Some(entry) = &operation.entry {
        // writing to a string does not fail
        let _ = write!(text, "cached: {}", entry.config);
    }
    for line in &operation.stale {
        let _ = write!(text, "\n{line}");
    }
    Case {
        class: &operation.call.op_id,
        name: format!("{} ({})", operation.call, operation.direction),
        seconds: operation.spent.total().as_secs_f64(),
        outcome: match operation.verdict {
            verdict if verdict.is_alarm() => Outcome::Failure,
            Verdict::Missing => missing(),
            verdict if verdict.is_unchecked() => Outcome::Error,
            _ => Outcome::Passed,
        },
        kind: operation.verdict.name(),
        message: &operation.reason,
        text,
    }
}

/// Text for an attribute or an element. A character that XML 1.0 has no place for is replaced: no reference may name it
/// either. Line breaks in attributes are references, since a parser makes blanks of them.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\t' | '\n' | '\r' => drop(write!(escaped, "&#{};", u32::from(c))),
            '\0'..'\u{20}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
}
