//! One record: its name, its bytes, and whether the two match.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Invocation, ProblemKind, SCHEMA};
use crate::digest::Digest;
use crate::outside_file;

/// Largest record that is read.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Bytes of the operation's name in its folder's name.
const MAX_SLUG_BYTES: usize = 80;

#[derive(Deserialize)]
struct Head {
    schema: u64,
}

#[derive(Deserialize)]
struct Body {
    invocation: Invocation,
}

#[derive(Serialize)]
struct RecordDocument<'a> {
    schema: u32,
    invocation: &'a Invocation,
}

/// A record as it was read.
pub(super) struct StoredRecord {
    pub(super) invocation: Invocation,
    /// Digest of the record's bytes.
    pub(super) content: Digest,
}

/// The folder of an operation's records. Different operations may share one: a reader looks into the record.
pub(super) fn slug(op_id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let bytes = op_id.bytes().take(MAX_SLUG_BYTES);
    let slug: String = bytes.map(|byte| if plain(byte) { char::from(byte) } else { '_' }).collect();
    match slug.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => slug,
    }
}

/// The bytes of a record and its path inside the registry.
pub(super) fn encode(invocation: &Invocation) -> Result<(PathBuf, Vec<u8>), serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(&RecordDocument { schema: SCHEMA, invocation })?;
    bytes.push(b'\n');
    let name = format!("{}-{}.json", invocation.key().to_short(), Digest::of(&bytes));
    Ok((Path::new("invocations").join(slug(&invocation.call.op_id)).join(name), bytes))
}

/// Reads and checks the record at a path.
pub(super) fn read(path: &Path) -> Result<StoredRecord, (ProblemKind, String)> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = name.strip_suffix(".json").and_then(|stem| stem.split_once('-'));
    let named = named.and_then(|(key, content)| Some((key, content.parse::<Digest>().ok()?)));
    let Some((key, content)) = named else {
        let message = "its name is not `<16 digits>-<64 digits>.json`; add it with `registry add`".to_owned();
        return Err((ProblemKind::Name, message));
    };
    let bytes =
        outside_file::bytes(path, MAX_RECORD_BYTES).map_err(|error| (ProblemKind::Unreadable, error.to_string()))?;
    if Digest::of(&bytes) != content {
        let message = "its bytes do not have the digest in its name: incomplete or changed; record it again".to_owned();
        return Err((ProblemKind::Digest, message));
    }
    // the schema first, because a newer record need not have today's fields
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| (ProblemKind::Content, error.to_string()))?;
    if head.schema != u64::from(SCHEMA) {
        let message =
            format!("it has schema {}, this version reads {SCHEMA}: use a newer autotune-lowered", head.schema);
        return Err((ProblemKind::Schema, message));
    }
    let body: Body = serde_json::from_slice(&bytes).map_err(|error| (ProblemKind::Content, error.to_string()))?;
    body.invocation.check().map_err(|error| (ProblemKind::Content, error.to_string()))?;
    if body.invocation.key().to_short() != key {
        let message = format!("its name has the key `{key}`, its content `{}`", body.invocation.key().to_short());
        return Err((ProblemKind::Name, message));
    }
    Ok(StoredRecord { invocation: body.invocation, content })
}
