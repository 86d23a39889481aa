//! The manifest: which snapshot is in force.

use serde::{Deserialize, Serialize};

use super::RemoteError;
use crate::cache::Snapshot;
use crate::digest::Digest;
use crate::measured_by::TOOL;
use crate::printable::printable;
use crate::signature::Statement;

pub(super) const MANIFEST: &str = "manifest-v1.json";
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 16;
/// Largest snapshot that is fetched or published.
pub(super) const MAX_SNAPSHOT_BYTES: u64 = 4 << 30;
const SCHEMA: u64 = 1;

/// The content of `manifest-v1.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheManifest {
    schema: u64,
    /// Number of publications at this URL.
    pub generation: u64,
    /// The snapshot in force, by its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// Its entries.
    pub entries: u64,
    /// Program and version that published it.
    pub tool: String,
    /// When, seconds since 1970.
    pub published_at: u64,
}

#[derive(Deserialize)]
struct ManifestVersion {
    schema: u64,
}

impl CacheManifest {
    /// The next manifest: later than the existing one and than any seen here, even if a store was reset or a clock is
    /// behind.
    pub(super) fn after(
        previous: Option<&Self>,
        seen: Option<&Statement>,
        snapshot: &Snapshot,
        size: u64,
        now: u64,
    ) -> Self {
        let earlier = || previous.map(Self::to_statement).into_iter().chain(seen.copied());
        let generation = earlier().map(|statement| statement.generation).max().unwrap_or(0).saturating_add(1);
        let now = earlier().map(|statement| statement.time).fold(now, u64::max);
        Self {
            schema: SCHEMA,
            generation,
            digest: snapshot.digest(),
            size,
            entries: snapshot.len(),
            tool: TOOL.to_owned(),
            published_at: now,
        }
    }

    pub(super) fn from_bytes(bytes: &[u8], url: &str) -> Result<Self, RemoteError> {
        // the message may contain the store's own characters
        let wrong = |what: String| {
            let what = printable(&what);
            RemoteError::Damaged { url: url.to_owned(), name: MANIFEST.to_owned(), what }
        };
        let ManifestVersion { schema } = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if schema > SCHEMA {
            return Err(RemoteError::Newer { url: url.to_owned(), schema });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if manifest.size > MAX_SNAPSHOT_BYTES {
            let what = format!("its snapshot has {} bytes, at most {MAX_SNAPSHOT_BYTES} are fetched", manifest.size);
            return Err(wrong(what));
        }
        if manifest.generation == 0 {
            // signed files that are published nowhere have this generation
            return Err(wrong("its generation is 0, the first one is 1".to_owned()));
        }
        Ok(manifest)
    }

    /// The statement that its signature covers.
    pub(super) fn to_statement(&self) -> Statement {
        Statement { digest: self.digest, generation: self.generation, time: self.published_at }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The name of its snapshot at the URL, which depends only on the digest.
    pub(super) fn snapshot_name(&self) -> String {
        snapshot_name(self.digest)
    }
}

pub(super) fn snapshot_name(digest: Digest) -> String {
    format!("snapshots/sha256-{digest}.snapshot")
}
