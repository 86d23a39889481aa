//! Lines of text, and JSON.

use std::fmt::{self, Display};
use std::io::{self, Write};

use serde::Serialize;

use crate::printable::{printable, printable_json};

/// Writes a value as indented JSON with a line feed at the end.
pub fn write_json<T: Serialize>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    writeln!(out, "{}", printable_json(&serde_json::to_string_pretty(value)?))
}

/// Writes one line of text, with whatever its values contain made printable.
pub fn write_line(out: &mut dyn Write, line: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(out, "{}", printable(&line.to_string()))
}

/// Writes one line of text, formatted as by `writeln!`, with whatever its values contain made printable.
macro_rules! line {
    ($out:expr, $($text:tt)+) => { $crate::report::write_line($out, format_args!($($text)+)) };
}
pub(super) use line;

/// Writes each of some lines.
pub(super) fn write_lines(out: &mut dyn Write, lines: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
    lines.into_iter().try_for_each(|line| write_line(out, format_args!("{line}")))
}

/// Writes each note as a line.
pub(super) fn write_notes(out: &mut dyn Write, notes: &[String]) -> io::Result<()> {
    write_lines(out, notes.iter().map(|note| format!("note: {note}")))
}

/// Writes a heading, separated by a blank line.
pub(super) fn heading(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n{text}")
}
