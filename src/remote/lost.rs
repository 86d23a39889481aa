//! Snapshots of lost races: stored under their digest by a publisher who then was not the first to replace the manifest.
//!
//! A publisher removes only what it put there itself, and only where no manifest ever named it: nothing lay under that
//! name before, and the very next generation, which won, names another one. Nor can it be named from then on. A merge is
//! never less than what it began with: if anybody's merge on top of the winner's entries gave this snapshot, so would
//! this publisher's own next one, which then keeps it. That leaves `--replace` with exactly these entries: so every
//! publisher looks after its manifest is in force whether its snapshot is there, and whoever removed one looks whether it
//! was named meanwhile; either puts it back.

use std::path::PathBuf;

use super::manifest::MANIFEST;
use super::{Manifest, Remote};
use crate::signature::signature_path;

/// What this publisher put there and nobody named.
#[derive(Debug, Default)]
pub(super) struct Lost(Vec<LostSnapshot>);

#[derive(Debug)]
struct LostSnapshot {
    name: String,
    /// The generation that it was to follow.
    after: u64,
    /// Whether the next one was seen, and names another snapshot.
    was_never_named: bool,
    /// Where it is on this machine; goes with this.
    scratch: tempfile::TempDir,
    file: PathBuf,
}

impl Lost {
    /// Remembers one that was not there before and whose manifest came too late.
    pub(super) fn add(&mut self, name: String, after: u64, (scratch, file): (tempfile::TempDir, PathBuf)) {
        self.0.push(LostSnapshot { name, after, was_never_named: false, scratch, file });
    }

    /// Takes note of the manifest that is in force: of those that it does not follow at once, nobody knows who named them.
    pub(super) fn see(&mut self, manifest: Option<&Manifest>) {
        self.0.retain_mut(|lost| {
            let Some(manifest) = manifest else { return false };
            lost.was_never_named |= manifest.generation == lost.after.saturating_add(1);
            lost.was_never_named && manifest.snapshot_name() != lost.name
        });
    }
}

impl Remote {
    /// Removes what nobody named. What cannot be removed stays, and costs its bytes alone.
    pub(super) fn remove_lost(&self, mut lost: Lost) {
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

    /// Puts a snapshot that is in force where it belongs, if somebody took it for the one of a lost race.
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
