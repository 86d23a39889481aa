//! What a command prints: a table for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

/// A result that can be printed both ways.
pub trait Document: Sized {
    /// For programs; `docs/json.md` has the schemas.
    fn into_json(self) -> impl Serialize;

    /// For people.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()>;
}
