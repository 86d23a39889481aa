//! JUnit XML in the form that Jenkins, GitLab and GitHub's reporters read.

use std::fmt::Write as _;
use std::io::{self, Write};

/// The outcome of a case.
pub(crate) enum CaseOutcome {
    Passed,
    /// What is checked does not hold.
    Failure,
    /// It could not be checked.
    Error,
    Skipped,
}

pub(crate) struct Case<'a> {
    pub(crate) class: &'a str,
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) outcome: CaseOutcome,
    /// The outcome in a word or two.
    pub(crate) kind: &'a str,
    pub(crate) message: &'a str,
    pub(crate) text: String,
}

/// Cases of one device.
pub(crate) struct Suite<'a> {
    pub(crate) name: String,
    pub(crate) cases: Vec<Case<'a>>,
}

/// Writes the whole document; `command` is what was run.
///
/// # Errors
/// If `out` cannot be written.
pub(crate) fn write_suites(out: &mut dyn Write, command: &str, suites: &[Suite<'_>]) -> io::Result<()> {
    let all: Vec<&Case<'_>> = suites.iter().flat_map(|suite| &suite.cases).collect();
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(out, r#"<testsuites name="autotune-lowered {command}" {}>"#, counts(&all))?;
    for Suite { name, cases } in suites {
        let counts = counts(&cases.iter().collect::<Vec<_>>());
        writeln!(out, r#"  <testsuite name="{}" {counts}>"#, escaped(name))?;
        for Case { class, name, seconds, outcome, kind, message, text } in cases {
            let (class, name) = (escaped(class), escaped(name));
            write!(out, r#"    <testcase classname="{class}" name="{name}" time="{seconds:.3}">"#)?;
            let (kind, message, text) = (escaped(kind), escaped(message), escaped(text));
            match outcome {
                CaseOutcome::Passed => write!(out, "<system-out>{kind}: {message}&#10;{text}</system-out>")?,
                CaseOutcome::Failure => write!(out, r#"<failure type="{kind}" message="{message}">{text}</failure>"#)?,
                CaseOutcome::Error => write!(out, r#"<error type="{kind}" message="{message}">{text}</error>"#)?,
                CaseOutcome::Skipped => write!(out, r#"<skipped message="{message}"/>"#)?,
            }
            writeln!(out, "</testcase>")?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")
}

fn counts(cases: &[&Case<'_>]) -> String {
    let count = |wanted: fn(&CaseOutcome) -> bool| cases.iter().filter(|case| wanted(&case.outcome)).count();
    let failures = count(|outcome| matches!(outcome, CaseOutcome::Failure));
    let errors = count(|outcome| matches!(outcome, CaseOutcome::Error));
    let skipped = count(|outcome| matches!(outcome, CaseOutcome::Skipped));
    let seconds: f64 = cases.iter().map(|case| case.seconds).sum();
    let tests = cases.len();
    format!(r#"tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{seconds:.3}""#)
}

/// Text for an attribute or an element. A character that XML 1.0 forbids is replaced, because no reference may name it
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
