//! A cache at a URL during a run: the published snapshot is a tier below this machine's decisions, which are published
//! in turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Address, CacheManifest, Pulled, Pushing, Remote, RemoteError, Trust};
use crate::cache::{Cached, ConfigStore, Snapshot, SnapshotStore};
use crate::counted::counted;
use crate::digest::Digest;
use crate::ledger::Ledger;
use crate::mapped_file::Mapping;
use crate::merge::merge;
use crate::setters;
use crate::signature::{PublicKeys, Signer};

/// This machine's copy of a URL's snapshot, in the folder that it has for the URL.
pub const COPY_FILE: &str = "pulled-v1.snapshot";

/// Notes on what was loaded, one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadNotes {
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The result.
    pub details: Vec<String>,
}

impl Pulled {
    /// Notes on it.
    pub fn news(&self) -> LoadNotes {
        let mut details = Vec::new();
        if let Some(manifest) = &self.manifest {
            let how = if self.fetched { "fetched" } else { "here already" };
            let entries = counted(manifest.entries, "entry");
            details.push(format!("generation {}, {entries}, {how}", manifest.generation));
        }
        details.extend(self.signed_by.as_ref().map(|key| format!("signed by {key}")));
        LoadNotes { warnings: self.note().into_iter().collect(), details }
    }
}

/// Which keys must have signed a URL's content, and which key signs what is published there.
#[derive(Debug, Default)]
pub struct SharedOptions {
    /// Keys, one of which must have signed it.
    pub keys: Option<PublicKeys>,
    /// The required digest.
    pub pin: Option<Digest>,
    /// Signs what this machine publishes; its own signatures are accepted if no keys are given.
    pub signer: Option<Signer>,
}

setters!(SharedOptions { keys: Option<PublicKeys>, pin: Option<Digest>, signer: Option<Signer> });

/// A tuning run whose results are published when it ends.
#[derive(Debug)]
pub struct SharedRun {
    remote: Remote,
    copy: PathBuf,
    options: SharedOptions,
}

/// The tiers for look-ups in a URL: the published snapshot, if any, above `shipped`. `folder` is this machine's for the
/// URL.
///
/// # Errors
/// If the published snapshot cannot be loaded or is not trusted.
pub fn open_for_reading(
    address: Address,
    folder: &Path,
    options: &SharedOptions,
    shipped: Vec<Box<dyn ConfigStore>>,
) -> Result<(Ledger, LoadNotes), RemoteError> {
    let trust = Trust { keys: options.keys.as_ref(), pin: options.pin, allow_rollback: false };
    let (published, news) = match Remote::open(address)?.pull(&folder.join(COPY_FILE), trust) {
        Err(error @ RemoteError::Nothing { .. }) => {
            (None, LoadNotes { warnings: vec![error.to_string()], ..LoadNotes::default() })
        }
        pulled => with_news(pulled?),
    };
    Ok((Ledger::in_memory(above(published, shipped)), news))
}

impl SharedRun {
    /// Opens this machine's folder for a URL above the published snapshot. If the store is unreachable, the run
    /// continues without it.
    ///
    /// # Errors
    /// If the URL is read-only, the published snapshot is not trusted, or the folder cannot be opened.
    pub fn open(
        address: Address,
        folder: &Path,
        options: SharedOptions,
        shipped: Vec<Box<dyn ConfigStore>>,
    ) -> Result<(Self, Ledger, LoadNotes), RemoteError> {
        if address.is_read_only() {
            return Err(RemoteError::ReadOnly { url: address.to_string() });
        }
        let run = Self { copy: folder.join(COPY_FILE), remote: Remote::open(address)?, options };
        let own = run.options.signer.as_ref().map(Signer::to_public_keys);
        let keys = run.options.keys.as_ref().or(own.as_ref());
        let trust = Trust { keys, pin: run.options.pin, allow_rollback: false };
        let (published, news) = match run.remote.pull(&run.copy, trust) {
            // results are stored here and published when the store is reachable again
            Err(error) if error.is_away() => {
                let warnings = vec![format!("{error}; tuning without it")];
                (None, LoadNotes { warnings, ..LoadNotes::default() })
            }
            // usual at the first run
            Err(RemoteError::Nothing { url }) => {
                let details = vec![format!("nothing is published at `{url}` yet; this run publishes")];
                (None, LoadNotes { details, ..LoadNotes::default() })
            }
            loaded => loaded.map(with_news)?,
        };
        let is_published = published.is_some();
        let ledger = Ledger::open(folder, above(published, shipped))?;
        if is_published {
            let snapshot = Snapshot::open(&run.copy, Mapping::Never)?;
            adopt(&ledger, &SnapshotStore::new(snapshot))?;
        }
        Ok((run, ledger, news))
    }

    /// Where it publishes.
    pub fn address(&self) -> &Address {
        self.remote.address()
    }

    /// Publishes this machine's decisions; `None` if all are already published.
    ///
    /// # Errors
    /// If the folder cannot be read or the URL cannot be written; the decisions stay in the folder.
    pub fn publish(&self, ledger: &Ledger) -> Result<Option<CacheManifest>, RemoteError> {
        let entries = ledger.own_entries()?;
        if entries.is_empty() {
            return Ok(None);
        }
        let SharedOptions { signer, keys, .. } = &self.options;
        let pushing = Pushing { entries: &entries, signer: signer.as_ref(), keys: keys.as_ref(), replace: false };
        match self.remote.push(&self.copy, pushing) {
            Ok(published) => Ok((!published.was_there).then_some(published.manifest)),
            Err(error @ RemoteError::Replayed { .. }) => {
                tracing::warn!("{error}");
                Ok(None)
            }
            Err(source) => {
                Err(RemoteError::NotPublished { url: self.remote.address().to_string(), source: Box::new(source) })
            }
        }
    }
}

/// A URL's snapshot in force, and what to say about it.
fn with_news(pulled: Pulled) -> (Option<Snapshot>, LoadNotes) {
    let news = pulled.news();
    (Some(pulled.snapshot), news)
}

fn above(published: Option<Snapshot>, shipped: Vec<Box<dyn ConfigStore>>) -> Vec<Box<dyn ConfigStore>> {
    let published = published.map(|snapshot| Box::new(SnapshotStore::new(snapshot)) as Box<dyn ConfigStore>);
    published.into_iter().chain(shipped).collect()
}

/// Imports others' better decisions for calls that this folder has too, because its own tiers hide the published one.
fn adopt(ledger: &Ledger, published: &SnapshotStore) -> Result<(), RemoteError> {
    for (key, own) in ledger.own_entries()? {
        let Some(theirs) = published.get(key.parts())?.filter(|theirs| *theirs != own) else { continue };
        let both = [theirs, Arc::clone(&own)].map(|entry| Cached::Entries(vec![(key.clone(), entry)]));
        for (key, entry) in merge(&both)?.to_entries()?.iter().filter(|(_, entry)| *entry != own) {
            ledger.commit(None, key, entry)?;
        }
    }
    Ok(())
}
