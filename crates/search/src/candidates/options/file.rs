//! The members of an option space's file, as they stand in it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::kind::{OptionKind, OptionScope};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "schema")]
    _schema: u64,
    pub(super) platform: String,
    #[serde(default)]
    pub(super) asked: Vec<String>,
    pub(super) options: Vec<OptionEntry>,
}

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) schema: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptionEntry {
    pub(super) name: String,
    pub(super) values: Vec<Value>,
    pub(super) kind: OptionKind,
    pub(super) scope: OptionScope,
    #[serde(default)]
    pub(super) with: Map<String, Value>,
    #[serde(default)]
    pub(super) versions: Vec<String>,
    pub(super) does: String,
    pub(super) source: String,
}
