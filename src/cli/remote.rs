//! `cache pull`, `cache push`, and `--cache URL`: caches that machines share.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::cache::{Cached, ConfigStore, Snapshot, SnapshotStore, merge};
use crate::counted::counted;
use crate::ledger::Ledger;
use crate::mapped_file::Mapping;
use crate::remote::{Address, Pushing, Remote, RemoteError, Trust};
use crate::signature::{PublicKeys, Signer};

use super::fault::Fault;
use super::options::{CacheArgs, Pin};
use super::say::say;
use super::signature::{SignerArgs, public_keys, signer};
use super::{cache, exit};

#[derive(Debug, Args)]
pub(super) struct PullArgs {
    /// Where it is published: s3://, gs://, az://, https://, http:// or file://
    pub url: String,
    /// Snapshot file to write [default: this machine's copy for the URL]
    pub out: Option<PathBuf>,
    /// File of public keys, one of which must have signed it
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
    /// Digest that it must have, which `cache push` prints
    #[arg(long, value_name = "DIGEST", env = "AUTOTUNE_LOWERED_PIN")]
    pub pin: Option<Pin>,
    /// Load it also where it is of an older generation than what is here
    #[arg(long)]
    pub allow_rollback: bool,
}

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// Where to publish: s3://, gs://, az:// or file://
    pub url: String,
    /// Snapshots to publish in place of the cache folder
    pub snapshots: Vec<PathBuf>,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// Put these entries in the place of what is published, and merge nothing
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// A tuning run whose results are published when it ends.
pub(super) struct SharedRun {
    remote: Remote,
    copy: PathBuf,
    signer: Option<Signer>,
    keys: Option<PublicKeys>,
}

impl SharedRun {
    /// Opens the URL's folder of this machine above what is published.
    pub(super) fn open(address: Address, args: &CacheArgs, signing: &SignerArgs) -> Result<(Self, Ledger), Fault> {
        if address.is_read_only() {
            return Err(RemoteError::ReadOnly { url: address.to_string() }.into());
        }
        let folder = cache::folder_of(&address)?;
        let keys = public_keys(args.verify_key.as_deref())?;
        let run = Self {
            copy: folder.join(cache::COPY_FILE),
            signer: signer(signing.sign_key.as_deref(), signing.sign_command.as_deref(), keys.as_ref())?,
            keys,
            remote: Remote::open(address)?,
        };
        let own = run.signer.as_ref().map(Signer::to_public_keys);
        let mut tiers: Vec<Box<dyn ConfigStore>> = Vec::new();
        let published =
            match cache::load(&run.remote, &run.copy, cache::trust(run.keys.as_ref().or(own.as_ref()), args.pin)) {
                Ok(snapshot) => snapshot,
                // what is tuned is kept here and published when the store is back
                Err(fault) if fault.is_away => {
                    tracing::warn!("{}; tuning without it", fault.message);
                    None
                }
                Err(fault) => return Err(fault),
            };
        let is_published = published.is_some();
        tiers.extend(published.map(|snapshot| Box::new(SnapshotStore::new(snapshot)) as Box<dyn ConfigStore>));
        tiers.extend(cache::seeds(args));
        let ledger = Ledger::open(&folder, tiers)?;
        if is_published {
            let snapshot = Snapshot::open(&run.copy, Mapping::Never)?;
            adopt(&ledger, &SnapshotStore::new(snapshot))?;
        }
        Ok((run, ledger))
    }

    /// Publishes what this machine has decided.
    pub(super) fn publish(&self, ledger: &Ledger) -> Result<(), Fault> {
        let entries = ledger.own_entries()?;
        if entries.is_empty() {
            return Ok(());
        }
        let pushing =
            Pushing { entries: &entries, signer: self.signer.as_ref(), keys: self.keys.as_ref(), replace: false };
        match self.remote.push(&self.copy, pushing) {
            Ok(published) if published.was_there => Ok(()),
            Ok(published) => {
                let manifest = published.manifest;
                let (url, generation) = (self.remote.address(), manifest.generation);
                say(&format!("published at `{url}`: generation {generation}, {} entries", manifest.entries));
                Ok(())
            }
            Err(error) => {
                let url = self.remote.address();
                let mut fault = Fault::from(error);
                fault.message = format!(
                    "not published: {}; what was decided is kept here, `autotune-lowered cache push {url} --cache {url}` \
                     publishes it",
                    fault.message
                );
                Err(fault)
            }
        }
    }
}

/// Takes over what others decided better for calls that this folder has too: its own tiers hide the published one.
fn adopt(ledger: &Ledger, published: &SnapshotStore) -> Result<(), Fault> {
    for (key, own) in ledger.own_entries()? {
        let Some(theirs) = published.get(key.parts())?.filter(|theirs| *theirs != own) else { continue };
        let both = [theirs, Arc::clone(&own)].map(|entry| Cached::Entries(vec![(key.clone(), entry)]));
        for (key, entry) in merge(&both)?.to_entries()?.iter().filter(|(_, entry)| *entry != own) {
            ledger.commit(None, key, entry)?;
        }
    }
    Ok(())
}

/// Runs `cache pull`.
pub(super) fn pull(args: &PullArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let address = Address::parse(&args.url)?;
    let path = match &args.out {
        Some(path) if path.is_dir() => {
            let message = format!("`{}` is a folder; name the snapshot file to write", path.display());
            return Err(Fault::new(exit::USAGE, message));
        }
        Some(path) => path.clone(),
        None => cache::folder_of(&address)?.join(cache::COPY_FILE),
    };
    let keys = public_keys(args.verify_key.as_deref())?;
    let trust = Trust { allow_rollback: args.allow_rollback, ..cache::trust(keys.as_ref(), args.pin) };
    let pulled = Remote::open(address)?.pull(&path, trust)?;
    cache::tell_pulled(&pulled);
    writeln!(out, "{}  {}", pulled.snapshot.digest(), path.display())?;
    Ok(exit::FINE)
}

/// Runs `cache push`.
pub(super) fn push(args: &PushArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let address = Address::parse(&args.url)?;
    let keys = public_keys(args.cache.verify_key.as_deref())?;
    let (key, command) = (args.signer.sign_key.as_deref(), args.signer.sign_command.as_deref());
    let signer = signer(key, command, keys.as_ref())?;
    let mut caches = Vec::new();
    if args.snapshots.is_empty() {
        // also of a URL's folder: what a run could not publish
        let ledger = Ledger::open_for_reading(&cache::folder(&args.cache)?, Vec::new)?;
        cache::tell(&ledger);
        caches.push(Cached::Entries(ledger.own_entries()?));
    }
    for path in &args.snapshots {
        let snapshot = Snapshot::open(path, Mapping::Never)?;
        snapshot.verify()?;
        caches.push(Cached::of_snapshot(snapshot));
    }
    let entries = merge(&caches)?.to_entries()?;
    if entries.is_empty() {
        // a mistyped folder must not take the place of what others read
        let message = "there is nothing to publish: tune a module first, or name another cache with `--cache`";
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    let copy = cache::folder_of(&address)?.join(cache::COPY_FILE);
    let remote = Remote::open(address)?;
    let pushing = Pushing { entries: &entries, signer: signer.as_ref(), keys: keys.as_ref(), replace: args.replace };
    let published = remote.push(&copy, pushing)?;
    let manifest = &published.manifest;
    let news = if published.was_there { ", as before" } else { "" };
    tracing::info!("generation {}, {}{news}", manifest.generation, counted(manifest.entries, "entry"));
    writeln!(out, "{}  {}", manifest.digest, remote.address())?;
    Ok(exit::FINE)
}
