//! `cache get`: the config that a program finds at run time.

use std::path::Path;

use crate::cache::{ConfigStore, Hit, MissReason, SNAPSHOT_FILE, Snapshot, SnapshotStore, TieredCache};
use crate::device::{DeviceFingerprint, MatchMode};
use crate::digest::Digest;
use crate::mapped_file::Mapping;
use crate::measured_by::CacheState;

use super::fault::Fault;
use super::options::CacheArgs;
use super::{cache, exit};

/// Looks up what a program finds at run time, in the published snapshot. If there is none, or it is damaged, the
/// folder's other stores answer.
pub(super) fn look_up(
    args: &CacheArgs,
    (device, is_replay): (&DeviceFingerprint, bool),
    (op, key): (&str, &str),
    (mode, cache_state): (MatchMode, &CacheState),
) -> Result<Result<Hit<'static>, MissReason>, Fault> {
    let of = |cache: &mut TieredCache| {
        cache.set_cache_state(cache_state.clone());
        cache.set_finds_replayed(is_replay);
        cache.lookup(device, op, key, None, mode)?.found()
    };
    if cache::address(args)?.is_some() {
        // the published snapshot answers, not decisions that this machine may not have published
        return Ok(of(cache::open_for_reading(args)?.cache_mut())?);
    }
    let folder = cache::folder(args)?;
    let published = if folder.is_file() { folder } else { folder.join(SNAPSHOT_FILE) };
    if let Some(pin) = args.pin {
        return Ok(of(&mut pinned(&published, pin, args)?)?);
    }
    if published.exists() {
        match Snapshot::open(&published, Mapping::Never).and_then(|snapshot| of(&mut above_shipped(snapshot, args))) {
            Ok(found) => return Ok(found),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    Ok(of(cache::open_for_reading(args)?.cache_mut())?)
}

/// A snapshot above the shipped configs.
fn above_shipped(snapshot: Snapshot, args: &CacheArgs) -> TieredCache {
    let mut tiers: Vec<Box<dyn ConfigStore>> = vec![Box::new(SnapshotStore::new(snapshot))];
    tiers.extend(cache::shipped(args));
    TieredCache::new(tiers)
}

/// The published snapshot, which must be the pinned one, above the shipped configs.
fn pinned(path: &Path, pin: Digest, args: &CacheArgs) -> Result<TieredCache, Fault> {
    let found = path.exists().then(|| Snapshot::open(path, Mapping::Never)).transpose()?;
    match found {
        Some(snapshot) if snapshot.digest() == pin => Ok(above_shipped(snapshot, args)),
        found => {
            let found =
                found.map_or_else(|| "there is none".to_owned(), |snapshot| format!("it is {}", snapshot.digest()));
            let what = format!("the snapshot `{}` is not the pinned one: {found}, {pin} is pinned", path.display());
            Err(Fault::new(exit::CACHE_TROUBLE, what))
        }
    }
}
