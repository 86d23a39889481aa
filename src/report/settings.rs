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
    /// The configuration file, if one is used.
    pub file: Option<FileInForce>,
    /// One for each key.
    pub settings: Vec<SettingInForce>,
}

/// The configuration file.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileInForce {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Whether the user named it; otherwise it was found.
    pub named: bool,
    /// Whether it may run code and decide trust: it was named, or accepted.
    pub trusted: bool,
    /// Why its acceptance is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
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
    /// The file's value that commands ignore because the file was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

impl Document for SettingsInForce {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        match &self.file {
            None => write_line(out, format_args!("no configuration file"))?,
            Some(FileInForce { path, digest, named, trusted, record }) => {
                let state = match (named, trusted) {
                    (true, _) => "named",
                    (false, true) => "found, trusted",
                    (false, false) => "found, not trusted",
                };
                write_line(out, format_args!("{} ({state}), SHA-256 {digest}", path.display()))?;
                if let Some(record) = record {
                    write_line(out, format_args!("{record}"))?;
                }
            }
        }
        let mut grid = Grid::new(&["setting", "value", "from"]);
        for SettingInForce { key, value, from, withheld } in &self.settings {
            let value = if value.is_empty() { "-".to_owned() } else { value.join(" ") };
            grid.row(cells![key, value, from]);
            withheld.iter().for_each(|line| grid.line(line));
        }
        grid.write(out)
    }
}
