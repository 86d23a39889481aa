//! The side file `<module>.labels.json`: labels that the module itself could not carry, kept beside it.
//!
//! ```json
//! {"schema": 1,
//!  "module_digest": "<SHA-256 of the module file's bytes>",
//!  "labels": [{"op_id": "flash_attention@v2", "call_key": "fecadd86b926e7e8",
//!              "shapes": ["f32[1,256,4,64]"], "occurrences": 2, "backward": false}]}
//! ```
//!
//! `op_id` is required, all else in a label may be left out. The file is used only while its digest is that of the
//! module; a file of another schema is not ours and is left alone.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Label;
use super::found::{CallSite, Diagnosis, FoundLabel};
use crate::array::ArraySpec;
use crate::digest::Digest;
use crate::outside_file;

const MAX_BYTES: u64 = 1 << 26;

#[derive(Deserialize)]
struct SideFile {
    schema: u32,
    module_digest: Digest,
    labels: Vec<SideLabel>,
}

#[derive(Deserialize)]
struct SideLabel {
    op_id: String,
    #[serde(default)]
    call_key: Option<String>,
    #[serde(default)]
    shapes: Vec<ArraySpec>,
    #[serde(default = "one")]
    occurrences: u64,
    #[serde(default)]
    backward: bool,
    #[serde(default)]
    arguments: Option<serde_json::Value>,
}

fn one() -> u64 {
    1
}

/// Where the side file of a module lies: its whole name followed by `.labels.json`.
pub(crate) fn path_for(module: &Path) -> PathBuf {
    let mut name = module.as_os_str().to_owned();
    name.push(".labels.json");
    PathBuf::from(name)
}

/// What the side file says.
pub(crate) enum Side {
    /// There is none, or it is another program's.
    None,
    /// It belongs to this module.
    Labels(Vec<FoundLabel>),
    /// It is ours and cannot be used; why.
    Unusable(Diagnosis),
}

/// Reads the side file of `module`, whose digest is asked for only where there is one.
pub(crate) fn read(module: &Path, digest: impl FnOnce() -> std::io::Result<Digest>) -> Side {
    let path = path_for(module);
    if std::fs::metadata(&path).is_err() {
        return Side::None;
    }
    let unusable = |code: &str, why: String| {
        Side::Unusable(Diagnosis {
            code: code.to_owned(),
            message: format!("the side file `{}` {why}", path.display()),
        })
    };
    let text = match outside_file::text(&path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) => return unusable("side-file-unreadable", format!("cannot be read ({error}); it was not used")),
    };
    let value: serde_json::Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(error) => return unusable("side-file-unreadable", format!("is not JSON ({error}); it was not used")),
    };
    if value.get("module_digest").is_none() {
        return Side::None;
    }
    let side: SideFile = match serde_json::from_value(value) {
        Ok(side) => side,
        Err(error) => {
            return unusable("side-file-unreadable", format!("does not follow schema 1 ({error}); it was not used"));
        }
    };
    if side.schema != 1 {
        return unusable(
            "side-file-unreadable",
            format!("is of schema {}, this version reads 1; it was not used", side.schema),
        );
    }
    match digest() {
        Ok(digest) if digest == side.module_digest => Side::Labels(side.labels.into_iter().map(found).collect()),
        Ok(digest) => unusable(
            "side-file-stale",
            format!(
                "belongs to another module (digest {} there, {} here); it was not used: write it again from this module",
                side.module_digest.to_short(),
                digest.to_short()
            ),
        ),
        Err(error) => {
            unusable("side-file-unreadable", format!("was not used, since the module's digest failed ({error})"))
        }
    }
}

fn found(side: SideLabel) -> FoundLabel {
    let site = CallSite { backward: side.backward, ..CallSite::new("side file", side.shapes) };
    FoundLabel {
        occurrences: side.occurrences,
        backward: side.backward,
        call_sites: if site.operands.is_empty() { Vec::new() } else { vec![site] },
        arguments: side.arguments,
        ..FoundLabel::new(Label::new(side.op_id, side.call_key), "side-file")
    }
}
