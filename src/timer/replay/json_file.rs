//! JSON files of a bounded size, with the file's name in every error.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::timer::model::{Failure, FailureKind};

/// An error at a file.
pub(super) fn wrong(path: &Path, what: impl Display) -> Failure {
    Failure::new(FailureKind::Device, format!("{}: {what}", path.display()))
}

/// Reads a file that is called a `what` in errors.
pub(super) fn read<T: DeserializeOwned>(path: &Path, what: &str, most_bytes: u64) -> Result<T, Failure> {
    let unreadable = |error| wrong(path, format!("the {what} cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(most_bytes + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > most_bytes {
        return Err(wrong(path, format!("a {what} of more than {most_bytes} bytes")));
    }
    serde_json::from_str(&text).map_err(|error| wrong(path, format!("not a {what}: {error}")))
}
