//! Publishing: merge with the published entries, and swap the manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::bucket::ObjectVersion;
use super::lost::LostSnapshots;
use super::manifest::{MANIFEST, MAX_SNAPSHOT_BYTES, snapshot_name};
use super::pause::random_below;
use super::trust::seen;
use super::{CacheManifest, Remote, RemoteError, Trust};
use crate::atomic_write::{UnfinishedFolder, folder_of, remove_unfinished};
use crate::cache::{CacheKey, Cached, Entry, Snapshot};
use crate::counted::counted;
use crate::mapped_file::Mapping;
use crate::merge::merge;
use crate::setters;
use crate::signature::{
    MAX_SIGNATURE_BYTES, PublicKeys, Signature, SignatureError, Signatures, Signer, signature_path,
};

/// Number of attempts when other writers come first.
const ATTEMPTS: u32 = 32;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What to publish, and how.
#[derive(Debug, Clone, Copy)]
pub struct Pushing<'a> {
    /// The entries.
    pub entries: &'a [(CacheKey, Arc<Entry>)],
    /// The key that signs.
    pub signer: Option<&'a Signer>,
    /// Keys that must have signed the existing content; defaults to the signer's.
    pub keys: Option<&'a PublicKeys>,
    /// Whether the entries replace the published ones instead of being merged with them.
    pub replace: bool,
}

impl<'a> Pushing<'a> {
    /// Entries to merge with the published ones, unsigned.
    pub fn new(entries: &'a [(CacheKey, Arc<Entry>)]) -> Self {
        Self { entries, signer: None, keys: None, replace: false }
    }
}

setters!(Pushing<'a> { signer: Option<&'a Signer>, keys: Option<&'a PublicKeys>, replace: bool });

/// The result of publishing.
#[derive(Debug)]
pub struct Published {
    /// The manifest.
    pub manifest: CacheManifest,
    /// Whether nothing changed.
    pub was_there: bool,
}

impl Remote {
    /// Publishes entries, merged with the published ones. `copy` is this machine's copy, as [`pull`](Self::pull) makes
    /// it; afterwards it is the published snapshot.
    ///
    /// # Errors
    /// If the store cannot be read or written, or its content is not trusted.
    pub fn push(&self, copy: &Path, pushing: Pushing<'_>) -> Result<Published, RemoteError> {
        if self.address.is_read_only() {
            return Err(RemoteError::ReadOnly { url: self.address.to_string() });
        }
        let (measured, replayed) = Cached::Entries(pushing.entries.to_vec()).publishable()?;
        let measured = measured.to_entries()?;
        if replayed > 0 && measured.is_empty() {
            return Err(RemoteError::Replayed { url: self.address.to_string() });
        }
        if replayed > 0 {
            tracing::warn!(
                "published without {} of replayed samples or of a busy machine",
                counted(replayed, "decision")
            );
        }
        let pushing = Pushing { entries: &measured, ..pushing };
        let own_key = pushing.signer.map(Signer::to_public_keys);
        let trusted = pushing.keys.or(own_key.as_ref());
        let mut lost = LostSnapshots::default();
        for attempt in 1..=ATTEMPTS {
            if let Some(published) = self.try_push(copy, pushing, trusted, &mut lost)? {
                self.remove_lost(lost);
                return Ok(published);
            }
            // the replaced version must be the one that was read
            if pushing.replace {
                self.remove_lost(lost);
                return Err(RemoteError::Busy { url: self.address.to_string(), attempts: 1 });
            }
            let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
            std::thread::sleep(Duration::from_micros(random_below(longest.as_micros() as u64)));
        }
        self.remove_lost(lost);
        Err(RemoteError::Busy { url: self.address.to_string(), attempts: ATTEMPTS })
    }

    /// One attempt; `None` if another publisher was faster.
    fn try_push(
        &self,
        copy: &Path,
        pushing: Pushing<'_>,
        trusted: Option<&PublicKeys>,
        lost: &mut LostSnapshots,
    ) -> Result<Option<Published>, RemoteError> {
        let (manifest, version, there) = self.base_of(copy, pushing.replace, trusted)?;
        lost.see(manifest.as_ref());
        let (scratch, file, snapshot, size) = self.merged(copy, there, pushing.entries)?;
        let known = manifest.clone().filter(|manifest| manifest.digest == snapshot.digest());
        if let (None, None, Some(previous)) = (&known, pushing.signer, &manifest) {
            self.refuse_if_signed(previous)?;
        }
        let name = snapshot_name(snapshot.digest());
        // if that is unknown, it must not be removed
        let is_new = known.is_none() && matches!(self.bucket.has(&name), Ok(false));
        // under its digest may be something damaged
        if known.is_none() || pushing.replace {
            self.bucket.put(&name, &file).map_err(self.trouble(&name))?;
        }
        let was_there = known.is_some();
        let after = manifest.as_ref().map_or(0, |manifest| manifest.generation);
        let manifest = known.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            CacheManifest::after(manifest.as_ref(), seen(copy, trusted).as_ref(), &snapshot, size, now)
        });
        let signature = pushing.signer.map(|signer| signer.sign(manifest.to_statement())).transpose()?;
        if let Some(signature) = &signature {
            // beside the file too, in case both must be restored
            Signatures::from(signature.clone()).write_beside(&file)?;
            self.add_signature(&format!("{name}.sig"), signature)?;
        }
        if was_there {
            return Ok(Some(Published { manifest, was_there }));
        }
        let swapped = self.bucket.swap(MANIFEST, version.as_ref(), &manifest.to_bytes());
        drop(snapshot);
        if !swapped.map_err(self.trouble(MANIFEST))? {
            if is_new {
                lost.add(name, after, (scratch, file));
            }
            return Ok(None);
        }
        self.keep_there(&name, &file);
        // it is published: a copy that cannot be stored is fetched again
        let beside = signature_path(copy);
        let _ = match &signature {
            Some(signature) => Signatures::from(signature.clone()).write_beside(copy).is_ok(),
            None => fs::remove_file(&beside).is_ok(),
        };
        let _ = fs::rename(&file, copy);
        Ok(Some(Published { manifest, was_there }))
    }

    /// What is published, with its version, and the entries to merge with: none if all are replaced.
    fn base_of(
        &self,
        copy: &Path,
        replace: bool,
        trusted: Option<&PublicKeys>,
    ) -> Result<(Option<CacheManifest>, Option<ObjectVersion>, Cached), RemoteError> {
        if replace {
            let (manifest, version) = self.manifest_to_replace()?;
            return Ok((manifest, version, Cached::Entries(Vec::new())));
        }
        let Some((pulled, version)) = self.pull_now(copy, Trust { keys: trusted, ..Trust::default() })? else {
            return Ok((None, None, Cached::Entries(Vec::new())));
        };
        // whoever published may not have left out what replayed samples decided
        let (measured, _) = Cached::of_snapshot(pulled.snapshot).publishable()?;
        Ok((pulled.manifest, Some(version), measured))
    }

    /// A snapshot of both caches, its file, and the file's size.
    fn merged(
        &self,
        copy: &Path,
        there: Cached,
        entries: &[(CacheKey, Arc<Entry>)],
    ) -> Result<(UnfinishedFolder, PathBuf, Snapshot, u64), RemoteError> {
        let caches = [there, Cached::Entries(entries.to_vec())];
        let merged = merge(&caches)?;
        let folder = folder_of(copy);
        fs::create_dir_all(folder).map_err(RemoteError::io("make the folder", folder))?;
        remove_unfinished(folder);
        let scratch = UnfinishedFolder::new_in(folder).map_err(RemoteError::io("make a folder in", folder))?;
        let file = scratch.path().join("merged.snapshot");
        merged.write_snapshot(&file)?;
        let snapshot = Snapshot::open(&file, Mapping::Never)?;
        let size = fs::metadata(&file).map_err(RemoteError::io("read", &file))?.len();
        if size > MAX_SNAPSHOT_BYTES {
            let what = format!("it would have {size} bytes, at most {MAX_SNAPSHOT_BYTES} are published");
            return Err(RemoteError::Address { url: self.address.to_string(), what });
        }
        Ok((scratch, file, snapshot, size))
    }

    /// What others signed is not replaced by something unsigned.
    fn refuse_if_signed(&self, previous: &CacheManifest) -> Result<(), RemoteError> {
        match self.read_small(&format!("{}.sig", previous.snapshot_name()), MAX_SIGNATURE_BYTES)? {
            Some(_) => Err(SignatureError::KeyNeeded { file: self.address.to_string() }.into()),
            None => Ok(()),
        }
    }

    /// Adds a signature to those of other signers of this snapshot, also if they do so at the same time.
    fn add_signature(&self, name: &str, signature: &Signature) -> Result<(), RemoteError> {
        let file = format!("{name} of {}", self.address);
        for _ in 0..ATTEMPTS {
            let (there, version) = self.read_small(name, MAX_SIGNATURE_BYTES)?.unzip();
            // an invalid signature is replaced, because it would not be accepted
            let there = there.and_then(|bytes| Signatures::from_bytes(&bytes, &file).ok());
            let mut signatures = there.unwrap_or_default();
            if !signatures.add(signature.clone(), &file)? {
                return Ok(());
            }
            let text = signatures.to_text();
            if self.bucket.swap(name, version.as_ref(), text.as_bytes()).map_err(self.trouble(name))? {
                return Ok(());
            }
        }
        Err(RemoteError::Busy { url: self.address.to_string(), attempts: ATTEMPTS })
    }
}
