//! JSON files of a bounded size, with the file's name in every error.

use std::fmt::Display;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::failure::{Failure, FailureKind};
use crate::io_hint::io_hint;
use crate::outside_file;

/// An error at a file.
pub(super) fn wrong(path: &Path, what: impl Display) -> Failure {
    Failure::new(FailureKind::Device, format!("{}: {what}", path.display()))
}

/// Reads a file, called a `what` in errors; if it is not one, `next` says what to do.
pub(super) fn read<T: DeserializeOwned>(path: &Path, what: &str, next: &str, most_bytes: u64) -> Result<T, Failure> {
    let unreadable = |error| wrong(path, format!("the {what} cannot be read: {error}{}", io_hint(&error)));
    let text = outside_file::text(path, most_bytes).map_err(unreadable)?;
    serde_json::from_str(&text).map_err(|error| wrong(path, format!("not a {what}: {error}; {next}")))
}
