//! The side file `<module>.labels.json`: labels that the module itself could not carry.
//!
//! ```json
//! {"schema": 1,
//!  "module_digest": "<SHA-256 of the module file's bytes>",
//!  "labels": [{"op_id": "flash_attention@v2", "call_key": "fecadd86b926e7e8",
//!              "shapes": ["f32[1,256,4,64]"], "occurrences": 2, "backward": false}]}
//! ```
//!
//! `op_id` is required, everything else in a label is optional. The file is used only if its digest is that of the
//! module. A file with another schema is not ours and is ignored. The file also states how the module is compiled: see
//! `compiled_as`.

use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Label;
use super::found::{CallSite, Diagnosis, FoundLabel};
use crate::array::ArraySpec;
use crate::digest::Digest;
use crate::outside_file;

const MAX_BYTES: u64 = 1 << 26;

#[derive(Deserialize)]
struct SideFile {
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

/// The path of a module's side file: its whole name followed by `.labels.json`.
pub fn path_for(module: &Path) -> PathBuf {
    let mut name = module.as_os_str().to_owned();
    name.push(".labels.json");
    PathBuf::from(name)
}

/// The content of the side file.
pub(crate) enum Side {
    /// There is none, or another program wrote it.
    None,
    /// It belongs to this module.
    Labels(Vec<FoundLabel>),
    /// It is ours but cannot be used; the diagnosis says why.
    Unusable(Diagnosis),
}

/// Why a side file was not used: a diagnosis code, and the text after the file's name.
pub(super) struct Refused {
    code: &'static str,
    why: String,
}

impl Refused {
    pub(super) fn unreadable(why: String) -> Self {
        Self { code: "side-file-unreadable", why }
    }

    /// The whole message, for a module that cannot be used with it.
    pub(super) fn message(&self, module: &Path) -> String {
        format!("{}; write it again with `autotune_lowered.dump`, or remove it", self.what(module))
    }

    fn what(&self, module: &Path) -> String {
        format!("the side file `{}` {}", path_for(module).display(), self.why)
    }
}

/// Reads the labels in the side file of `module`, whose digest is computed only if there is one.
pub(crate) fn read(module: &Path, digest: impl FnOnce() -> std::io::Result<Digest>) -> Side {
    match of_module::<SideFile>(module, digest) {
        Ok(None) => Side::None,
        Ok(Some(side)) => Side::Labels(side.labels.into_iter().map(found).collect()),
        Err(refused) => {
            let message =
                format!("{}; it was not used: write it again with `autotune_lowered.dump`", refused.what(module));
            Side::Unusable(Diagnosis { code: refused.code.to_owned(), message })
        }
    }
}

/// The members of every side file.
#[derive(Deserialize)]
struct Head {
    schema: u32,
    module_digest: Digest,
}

/// The content of the side file of `module`; `None` if there is none, or another program wrote it.
pub(super) fn of_module<T: DeserializeOwned>(
    module: &Path,
    digest: impl FnOnce() -> std::io::Result<Digest>,
) -> Result<Option<T>, Refused> {
    let path = path_for(module);
    match std::fs::symlink_metadata(&path) {
        Ok(_) => {}
        // a path that is no file, or has the longest possible name, cannot have a file beside it
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | InvalidFilename) => return Ok(None),
        Err(error) => return Err(Refused::unreadable(format!("cannot be read ({error})"))),
    }
    let text = outside_file::text(&path, MAX_BYTES)
        .map_err(|error| Refused::unreadable(format!("cannot be read ({error})")))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Refused::unreadable(format!("is not JSON ({error})")))?;
    if value.get("module_digest").is_none() {
        return Ok(None);
    }
    let malformed = |error: serde_json::Error| Refused::unreadable(format!("does not follow schema 1 ({error})"));
    let Head { schema, module_digest } = Head::deserialize(&value).map_err(malformed)?;
    if schema != 1 {
        return Err(Refused::unreadable(format!("is of schema {schema}, this version reads 1")));
    }
    let side = serde_json::from_value(value).map_err(malformed)?;
    let digest = digest().map_err(|error| {
        Refused::unreadable(format!("cannot be compared with the module, whose digest failed ({error})"))
    })?;
    if digest != module_digest {
        let (there, here) = (module_digest.to_short(), digest.to_short());
        let why = format!("belongs to another module (digest {there} there, {here} here)");
        return Err(Refused { code: "side-file-stale", why });
    }
    Ok(Some(side))
}

fn found(side: SideLabel) -> FoundLabel {
    let mut found = FoundLabel {
        occurrences: side.occurrences,
        backward: side.backward,
        arguments: side.arguments,
        ..FoundLabel::new(Label::new(side.op_id, side.call_key), "side-file")
    };
    if !side.shapes.is_empty() {
        found.add_call_site(CallSite { backward: side.backward, ..CallSite::new("side file", side.shapes) });
    }
    found
}
