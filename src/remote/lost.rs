//! Snapshots of lost races: stored under their digest by a publisher that was then not the first to replace the
//! manifest.
//!
//! A publisher removes only what it stored itself, and only if no manifest ever named it: nothing existed under that
//! name before, and the very next generation, which won, names another one. Nor can it be named later. A merge never
//! has less than what it started from: if any merge on top of the winner's entries gave this snapshot, so would this
//! publisher's own next one, which then keeps it. That leaves `--replace` with exactly these entries. So every
//! publisher checks, once its manifest is in force, that its snapshot exists, and one that removed a snapshot checks
//! whether it was named in the meantime; either restores it.

use std::path::PathBuf;

use super::manifest::MANIFEST;
use super::{CacheManifest, Remote};
use crate::atomic_write::UnfinishedFolder;
use crate::signature::signature_path;

/// A snapshot that this publisher stored and no manifest names.
#[derive(Debug, Default)]
pub(super) struct LostSnapshots(Vec<LostSnapshot>);

#[derive(Debug)]
struct LostSnapshot {
    name: String,
    /// The generation that it was to follow.
    after: u64,
    /// Whether the next generation was seen and names another snapshot.
    was_never_named: bool,
    /// Its local file, removed with this.
    scratch: UnfinishedFolder,
    file: PathBuf,
}

impl LostSnapshots {
    /// Remembers one that did not exist before and whose manifest came too late.
    pub(super) fn add(&mut self, name: String, after: u64, (scratch, file): (UnfinishedFolder, PathBuf)) {
        self.0.push(LostSnapshot { name, after, was_never_named: false, scratch, file });
    }

    /// Notes the manifest in force: for snapshots that it does not directly follow, it is unknown whether a manifest
    /// named them.
    pub(super) fn see(&mut self, manifest: Option<&CacheManifest>) {
        self.0.retain_mut(|lost| {
            let Some(manifest) = manifest else { return false };
            lost.was_never_named |= manifest.generation == lost.after.saturating_add(1);
            lost.was_never_named && manifest.snapshot_name() != lost.name
        });
    }
}

impl Remote {
    /// Removes snapshots that no manifest named. One that cannot be removed only costs its bytes.
    pub(super) fn remove_lost(&self, mut lost: LostSnapshots) {
        if lost.0.is_empty() {
            return;
        }
        let Ok(Some((now, _))) = self.manifest() else { return };
        lost.see(Some(&now));
        for LostSnapshot { name, .. } in &lost.0 {
            for name in [format!("{name}.sig"), name.clone()] {
                if let Err(trouble) = self.bucket.remove(&name) {
                    let error = self.trouble(&name)(trouble);
                    tracing::info!("the snapshot of a lost race could not be removed: {error}");
                }
            }
        }
        let Ok(Some((now, _))) = self.manifest() else { return };
        for LostSnapshot { name, file, scratch, .. } in lost.0 {
            if now.snapshot_name() == name {
                self.put_back(&name, &file);
            }
            drop(scratch);
        }
    }

    /// Restores the snapshot in force, if another publisher removed it as that of a lost race.
    pub(super) fn keep_there(&self, name: &str, file: &std::path::Path) {
        if matches!(self.bucket.has(name), Ok(false)) {
            self.put_back(name, file);
        }
    }

    fn put_back(&self, name: &str, file: &std::path::Path) {
        let signature = signature_path(file);
        let signed = signature.exists().then(|| self.bucket.put(&format!("{name}.sig"), &signature));
        if let Err(trouble) = signed.unwrap_or(Ok(())).and_then(|()| self.bucket.put(name, file)) {
            let error = self.trouble(name)(trouble);
            tracing::warn!("`{MANIFEST}` names a snapshot that is gone: {error}; push again");
        }
    }
}
