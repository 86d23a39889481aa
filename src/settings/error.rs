//! Errors of the settings file.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::printable::printable;
use crate::remedy::remedy;

/// Why a settings file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// It cannot be opened or read, or is not a regular file.
    #[error("cannot read the configuration `{}`: {source}{}; `--config FILE` names another one, `--no-config` uses none", .path.display(), remedy(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A place in it is wrong. The text is one line, then an excerpt: the source line and a caret below it.
    #[error("{}:{line}:{column}: {message}\n{picture}", printable(&.path.display().to_string()))]
    At {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The column in characters, counted from 1.
        column: usize,
        /// What is wrong there; safe for a terminal.
        message: String,
        /// Three lines; safe for a terminal.
        picture: String,
    },
    /// A file that was merely found sets what such a file may not.
    #[error("`{}`:{line} sets `{key}`, which a file that was merely found may {why}: read it, then use `--config {}` or the flag, or `--no-config`", printable(&.path.display().to_string()), printable(&.path.display().to_string()))]
    NotForFound {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What it may do with the key: the end of the clause.
        why: String,
    },
    /// The user's own file is not theirs alone.
    #[error("the configuration `{}` is not used: {why}, or use `--no-config`", .path.display())]
    NotOwn {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
}

/// Maximum number of characters of a line shown before the caret, and after it.
const SHOWN: usize = 60;

impl SettingsError {
    /// An error at a range of bytes in a file's text.
    pub(super) fn at(path: &Path, text: &str, span: Range<usize>, message: &str) -> Self {
        // a parser may point past the end, or into a character
        let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (before, after) = text.split_at_checked(start).unwrap_or((text, ""));
        let line = before.matches('\n').count() + 1;
        let before = before.rsplit('\n').next().unwrap_or_default();
        let marked = span.end.saturating_sub(span.start);
        let marked: usize = after.char_indices().take_while(|(at, letter)| *at < marked && *letter != '\n').count();
        let after = after.split(['\n', '\r']).next().unwrap_or_default();
        let column = before.chars().count() + 1;
        // a line may be as long as the file
        let cut: String = before.chars().skip(column.saturating_sub(1 + SHOWN)).collect();
        let dots = if column > SHOWN + 1 { "…" } else { "" };
        let head = format!("{dots}{}", printable(&cut));
        let shown: Vec<char> = after.chars().take(SHOWN).collect();
        let under: String = shown.iter().take(marked).collect();
        let carets = "^".repeat(printable(&under).chars().count().max(1));
        let tail = printable(&shown.iter().collect::<String>());
        let more = if after.chars().nth(SHOWN).is_some() { "…" } else { "" };
        let (number, blanks) = (line.to_string(), " ".repeat(head.chars().count()));
        let margin = " ".repeat(number.len());
        let picture = format!(" {margin} |\n {number} | {head}{tail}{more}\n {margin} | {blanks}{carets}");
        Self::At { path: path.to_owned(), line, column, message: printable(message), picture }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(text: &str, span: Range<usize>) -> String {
        SettingsError::at(Path::new("/p/autotune.toml"), text, span, "wrong").to_string()
    }

    #[test]
    fn an_error_shows_its_place() {
        let expected = "/p/autotune.toml:2:1: wrong\n   |\n 2 | timre = 1\n   | ^^^^^";
        assert_eq!(picture("x = 1\ntimre = 1\n", 6..11), expected);
        // columns count characters, and a control character takes the width of its escape
        let expected = "/p/autotune.toml:1:4: wrong\n   |\n 1 | é\\u{7} b\n   |        ^";
        assert_eq!(picture("é\u{7} b", 4..5), expected);
    }

    #[test]
    fn no_place_is_out_of_bounds() {
        let long = "é".repeat(100_000);
        for (text, span) in [("", 0..0), ("", 5..9), ("a", 1..1), ("é", 1..2), (&*long, 99_999..150_000), ("a\n", 2..2)]
        {
            let shown = picture(text, span);
            assert!(shown.lines().count() == 4 && shown.len() < 1000, "{shown}");
        }
    }
}
