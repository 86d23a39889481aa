//! The settings in force, and where each comes from.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use crate::digest::Digest;

use super::document::versioned;
use super::grid::cells;
use super::{Document, Grid, write_line};

/// The settings that commands have without flags.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct SettingsInForce {
    /// The configuration files in use, the one with priority first.
    pub files: Vec<FileInForce>,
    /// One for each key.
    pub settings: Vec<SettingInForce>,
}

/// A configuration file.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileInForce {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// `named`, `own` or `found`: a found one may set what is harmless alone.
    pub origin: &'static str,
}

/// A key and its value.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct SettingInForce {
    /// The key: the flag's name.
    pub key: &'static str,
    /// The value, as arguments of the flag; none if the flag has no fixed default.
    pub value: Vec<String>,
    /// `default`, a variable's name, or the file with the line.
    pub from: String,
}

impl Document for SettingsInForce {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        if self.files.is_empty() {
            write_line(out, format_args!("no configuration file"))?;
        }
        for FileInForce { path, digest, origin } in &self.files {
            write_line(out, format_args!("{} ({origin}), SHA-256 {digest}", path.display()))?;
        }
        let mut grid = Grid::new(&["setting", "value", "from"]);
        for SettingInForce { key, value, from } in &self.settings {
            let value = if value.is_empty() { "-".to_owned() } else { value.join(" ") };
            grid.row(cells![key, value, from]);
        }
        grid.write(out)
    }
}
