//! `cache pull`, `cache push`, and `--cache URL`: caches that machines share.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cache::{Cached, Entry, Snapshot};
use crate::counted::counted;
use crate::digest::Digest;
use crate::ledger::Ledger;
use crate::mapped_file::Mapping;
use crate::merge::merge;
use crate::remote::{Address, COPY_FILE, Pushing, Remote, Trust};

use super::fault::Fault;
use super::options::{CacheArgs, part};
use super::signature::{SignerArgs, public_keys};
use super::{cache, exit};

#[derive(Debug, Args)]
pub(super) struct PullArgs {
    /// The URL of the cache: s3://, gs://, az://, https://, http:// or file://
    pub url: String,
    /// Snapshot file to write [default: this machine's copy for the URL]
    pub out: Option<PathBuf>,
    /// File of public keys, one of which must have signed it
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
    /// Required digest, as printed by `cache push`
    #[arg(long, value_name = "DIGEST", env = "AUTOTUNE_LOWERED_PIN")]
    pub pin: Option<Digest>,
    /// Load it even if its generation is older than the one here
    #[arg(long)]
    pub allow_rollback: bool,
}

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// The URL to publish at: s3://, gs://, az:// or file://
    pub url: String,
    /// Snapshots to publish instead of the cache folder
    pub snapshots: Vec<PathBuf>,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// Leave out entries that a fresh run would publish again with a smaller probability than this, and those of which
    /// it is unknown
    #[arg(long, value_name = "PART", value_parser = part)]
    pub min_stability: Option<f64>,
    /// Replace what is published with these entries instead of merging
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub cache: CacheArgs,
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
        None => cache::folder_of(&address)?.join(COPY_FILE),
    };
    let keys = public_keys(args.verify_key.as_deref())?;
    let trust = Trust { keys: keys.as_ref(), pin: args.pin, allow_rollback: args.allow_rollback };
    let pulled = Remote::open(address)?.pull(&path, trust)?;
    cache::tell_news(&pulled.news());
    writeln!(out, "{}  {}", pulled.snapshot.digest(), path.display())?;
    Ok(exit::FINE)
}

/// Runs `cache push`.
pub(super) fn push(args: &PushArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let address = Address::parse(&args.url)?;
    let keys = public_keys(args.cache.verify_key.as_deref())?;
    let signer = args.signer.signer(keys.as_ref())?;
    let mut caches = Vec::new();
    if args.snapshots.is_empty() {
        // also from a URL's folder, which has what a run could not publish
        let ledger = Ledger::open_for_reading(&cache::folder(&args.cache)?, Vec::new)?;
        cache::tell(&ledger);
        caches.push(Cached::Entries(ledger.own_entries()?));
    }
    for path in &args.snapshots {
        if path.is_dir() {
            let message = format!("`{0}` is a folder: publish a cache folder with `--cache {0}`", path.display());
            return Err(Fault::new(exit::USAGE, message));
        }
        let snapshot = Snapshot::open(path, Mapping::Never)?;
        snapshot.verify()?;
        caches.push(Cached::of_snapshot(snapshot));
    }
    let mut entries = merge(&caches)?.to_entries()?;
    if let Some(least) = args.min_stability {
        let all = entries.len();
        let stability = |entry: &Entry| entry.provenance.as_ref().and_then(|from| from.stability);
        entries.retain(|(_, entry)| stability(entry).is_some_and(|known| known >= least));
        if entries.len() < all {
            let left = counted(all - entries.len(), "entry");
            if entries.is_empty() {
                let message = format!(
                    "nothing is published: {left} of less stability than {least}, or of which it is unknown; tune \
                     with more `--rounds`, or lower `--min-stability`"
                );
                return Err(Fault::new(exit::NOTHING_MATCHED, message));
            }
            tracing::warn!("published without {left} of less than the least stability");
        }
    }
    if entries.is_empty() {
        // a mistyped folder must not replace what others read
        let message = "there is nothing to publish: tune a module first, or name another cache with `--cache`";
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    let copy = cache::folder_of(&address)?.join(COPY_FILE);
    let remote = Remote::open(address)?;
    let pushing = Pushing { entries: &entries, signer: signer.as_ref(), keys: keys.as_ref(), replace: args.replace };
    let published = remote.push(&copy, pushing)?;
    let manifest = &published.manifest;
    let news = if published.was_there { ", as before" } else { "" };
    tracing::info!("generation {}, {}{news}", manifest.generation, counted(manifest.entries, "entry"));
    writeln!(out, "{}  {}", manifest.digest, remote.address())?;
    Ok(exit::FINE)
}
