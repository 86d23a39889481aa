//! What is wrong with a space's file, and where.

use std::fmt;
use std::io;

use super::locate::line_and_column;
use crate::io_hint::io_hint;
use crate::printable::printable;

/// What is wrong with a space's file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceError {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1; zero if the file could not be read.
    pub line: usize,
    /// Column, from 1, in characters; zero if the file could not be read.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message } = self;
        match line {
            0 => write!(f, "{file}: {message}"),
            _ => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

impl std::error::Error for SpaceError {}

impl SpaceError {
    /// A file or folder that cannot be read.
    pub(super) fn unreadable(file: String, error: &io::Error) -> Self {
        Self { file, line: 0, column: 0, message: format!("cannot be read: {error}{}", io_hint(error)) }
    }

    /// A text that is not JSON, or JSON of another form.
    pub(super) fn of_json(file: &str, error: &serde_json::Error) -> Self {
        let message = error.to_string();
        // serde_json's messages end with the place, which the error already has
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        let (line, column) = (error.line().max(1), error.column().max(1));
        Self { file: file.to_owned(), line, column, message: printable(message) }
    }

    /// What is wrong at a byte offset of the text. Messages contain a file's own names and values.
    pub(super) fn at(file: &str, text: &str, offset: usize, message: &str) -> Self {
        let (line, column) = line_and_column(text, offset);
        Self { file: file.to_owned(), line, column, message: printable(message) }
    }
}
