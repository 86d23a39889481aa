//! The output of a command: a table for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

/// A result that can be printed in both formats.
pub trait Document: Sized {
    /// For programs; `docs/json.md` has the schemas.
    fn into_json(self) -> impl Serialize;

    /// For people.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()>;
}

/// A result with truncated lists: at a number of rows, or at each format's default.
pub struct Top<T> {
    /// The whole result.
    pub of: T,
    /// The most rows.
    pub most: Option<usize>,
}

/// Returns a result as version 1 of its schema.
pub(super) fn versioned<T: Serialize>(of: T) -> impl Serialize {
    #[derive(Serialize)]
    struct Versioned<T> {
        schema: u32,
        #[serde(flatten)]
        of: T,
    }
    Versioned { schema: 1, of }
}

/// Writes how many rows of a list are not shown.
pub(super) fn write_more(out: &mut dyn Write, shown: usize, of: usize, what: &str) -> io::Result<()> {
    if of > shown { writeln!(out, "and {} more{what}", of - shown) } else { Ok(()) }
}

/// Returns the name of a value that is serialized as text.
pub fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}
