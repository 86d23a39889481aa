//! Conditions for trusting a snapshot, besides its digest.

use std::path::Path;

use super::{CacheManifest, Remote, RemoteError};
use crate::digest::Digest;
use crate::setters;
use crate::signature::{PublicKeys, Signatures, Statement};

/// Requirements for the content of a URL.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trust<'a> {
    /// One of these keys must have signed it.
    pub keys: Option<&'a PublicKeys>,
    /// It must have this digest.
    pub pin: Option<Digest>,
    /// It may be older than what was loaded before.
    pub allow_rollback: bool,
}

setters!(Trust<'a> { keys: Option<&'a PublicKeys>, pin: Option<Digest>, allow_rollback: bool });

/// The latest generation that was loaded into a copy, from the signatures beside it, whichever snapshot is there now.
pub(super) fn seen(copy: &Path, keys: Option<&PublicKeys>) -> Option<Statement> {
    Signatures::read_beside(copy).ok()?.latest(keys)
}

impl Remote {
    /// Rejects a digest other than the pinned one.
    pub(super) fn refuse_other(&self, found: Digest, trust: Trust<'_>) -> Result<(), RemoteError> {
        match trust.pin {
            Some(pin) if pin != found => Err(RemoteError::Pinned { url: self.address.to_string(), found, pin }),
            _ => Ok(()),
        }
    }

    /// Rejects a generation older than the one loaded into this copy.
    pub(super) fn refuse_rollback(
        &self,
        manifest: &CacheManifest,
        copy: &Path,
        trust: Trust<'_>,
    ) -> Result<(), RemoteError> {
        let Some(seen) = seen(copy, trust.keys).filter(|_| !trust.allow_rollback) else { return Ok(()) };
        let shown = manifest.to_statement();
        let is_later = shown.generation > seen.generation && shown.time >= seen.time;
        if is_later || shown == seen {
            return Ok(());
        }
        let what = if shown.generation < seen.generation {
            "an older one"
        } else if shown.time < seen.time {
            "signed at an earlier time"
        } else {
            "another one of that number"
        };
        let (url, copy) = (self.address.to_string(), copy.to_owned());
        Err(RemoteError::Rollback { url, copy, shown: shown.generation, seen: seen.generation, what })
    }
}
