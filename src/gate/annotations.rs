//! The result as workflow commands of GitHub Actions, which the runner shows at the run and in a pull request.

use std::io::{self, Write};

use super::{CheckResult, CheckVerdict, OperationCheck};
use crate::printable::printable;

/// The level of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Notice,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

/// Writes a command for each operation that is not simply unchanged: errors for those that fail the gate, warnings for
/// stale ones, notices for the rest. Errors come first, since GitHub shows ten of each level per step. `module` is the
/// file that they are attached to.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_annotations(
    out: &mut dyn Write,
    result: &CheckResult,
    module: Option<&str>,
    allow_missing: bool,
) -> io::Result<()> {
    let mut annotated: Vec<(Level, bool, &OperationCheck)> = result
        .operations
        .iter()
        .filter_map(|operation| {
            let level = match operation.verdict {
                CheckVerdict::Holds => return None,
                CheckVerdict::Regressed | CheckVerdict::NotBetter | CheckVerdict::Broken | CheckVerdict::Failed => {
                    Level::Error
                }
                CheckVerdict::Missing if !allow_missing => Level::Error,
                CheckVerdict::Stale => Level::Warning,
                CheckVerdict::Faster | CheckVerdict::Missing => Level::Notice,
            };
            Some((level, !operation.verdict.is_alarm(), operation))
        })
        .collect();
    // stable: within a level in the module's order
    annotated.sort_by_key(|&(level, is_harmless, _)| (level, is_harmless));
    for (level, _, operation) in annotated {
        let title = format!("{} {}", operation.call, operation.verdict.name());
        let detail = std::iter::once(&operation.reason).chain(&operation.stale);
        let message = detail.map(String::as_str).collect::<Vec<_>>().join("\n");
        command(out, level, module, operation.line, &title, &message)?;
    }
    for missed in &result.missed {
        let level = if allow_missing { Level::Notice } else { Level::Error };
        let title = format!("{} not recorded", missed.label);
        command(out, level, module, None, &title, &missed.reason)?;
    }
    Ok(())
}

fn command(
    out: &mut dyn Write,
    level: Level,
    module: Option<&str>,
    line: Option<u64>,
    title: &str,
    message: &str,
) -> io::Result<()> {
    write!(out, "::{} ", level.name())?;
    if let Some(file) = module {
        write!(out, "file={},", property(file))?;
        if let Some(line) = line {
            write!(out, "line={line},")?;
        }
    }
    writeln!(out, "title={}::{}", property(title), data(message))
}

/// A message: the runner ends it at a line break and turns `%25`, `%0D` and `%0A` back (`escapeData` in
/// actions/toolkit, `packages/core/src/command.ts`).
fn data(text: &str) -> String {
    let text = text.replace('%', "%25");
    let joined = |parts: Vec<String>, by| parts.join(by);
    let lines = text.split('\n').map(|line| joined(line.split('\r').map(printable).collect(), "%0D"));
    joined(lines.collect(), "%0A")
}

/// A property, which also ends at a comma or at two colons.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_ends_the_command() {
        // what the runner's ActionCommand undoes, per cent last
        let unescaped = |text: &str| {
            let colons = text.replace("%0D", "\r").replace("%0A", "\n").replace("%3A", ":").replace("%2C", ",");
            colons.replace("%25", "%")
        };
        for hostile in ["a,b=c", "x::error::y", "50%", "%3A", "%0A", "a\r\n::stop-commands::t", "", "ü"] {
            let mut out = Vec::new();
            command(&mut out, Level::Error, Some(hostile), Some(7), hostile, hostile).unwrap();
            let text = String::from_utf8(out).unwrap();
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(['\n', '\r']), "{line:?}");
            let (properties, message) = line.strip_prefix("::error ").unwrap().split_once("::").unwrap();
            let parts: Vec<&str> = properties.split(',').collect();
            assert_eq!(parts.len(), 3, "{line}");
            for (part, name) in parts.iter().zip(["file=", "line=", "title="]) {
                let expected = if name == "line=" { "7" } else { hostile };
                assert_eq!(unescaped(part.strip_prefix(name).unwrap()), expected, "{line}");
            }
            assert_eq!(unescaped(message), hostile);
        }
    }
}
