//! The cache that `--cache` names: a folder, or a URL that machines share.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use crate::cache::{ConfigStore, ShippedConfigs};
use crate::ledger::Ledger;
use crate::remote::{self, Address, CachePlace, LoadNotes, SharedOptions, SharedRun};

use super::exit;
use super::fault::Fault;
use super::options::CacheArgs;
use super::say::say;
use super::signature::{SignerArgs, public_keys};

/// The cache folder: the one named by `--cache`, its variables or the configuration file, else `autotune-lowered` in
/// the platform's cache folder; for a URL this machine's folder for it.
pub(super) fn folder(args: &CacheArgs) -> Result<PathBuf, Fault> {
    match place(args)? {
        Some(CachePlace::Shared(address)) => folder_of(&address),
        Some(CachePlace::Local(folder)) => Ok(folder),
        None => native_folder(),
    }
}

/// `autotune-lowered` in the platform's cache folder.
pub(super) fn native_folder() -> Result<PathBuf, Fault> {
    etcetera::base_strategy::choose_native_strategy()
        .map(|strategy| strategy.cache_dir().join("autotune-lowered"))
        .map_err(|_| Fault::new(exit::CACHE_TROUBLE, "cannot find the home folder; name a cache with `--cache DIR`"))
}

/// The read-only tiers: the user's shipped configs, then the program's.
pub(super) fn shipped(args: &CacheArgs) -> Vec<Box<dyn ConfigStore>> {
    let mut tiers: Vec<Box<dyn ConfigStore>> = Vec::new();
    if let Some(folder) = &args.shipped {
        let (store, problems) = ShippedConfigs::read_folder(folder);
        for problem in problems {
            let (path, reason) = (problem.path.display(), problem.reason);
            tracing::warn!("`{path}` is left out: {reason}; write it again with `cache shipped`, or remove it");
        }
        tiers.push(Box::new(store));
    }
    tiers.push(Box::new(ShippedConfigs::built_in()));
    tiers
}

/// The cache of a run.
pub(super) struct RunCache {
    pub(super) ledger: Ledger,
    /// Its folder on this machine, also if this run keeps nothing.
    pub(super) folder: Option<PathBuf>,
    shared: Option<SharedRun>,
}

impl RunCache {
    /// Publishes the run's decisions, if its cache is at a URL.
    pub(super) fn publish(&self) -> Result<(), Fault> {
        let Some(shared) = &self.shared else { return Ok(()) };
        if let Some(manifest) = shared.publish(&self.ledger)? {
            let (url, generation, entries) = (shared.address(), manifest.generation, manifest.entries);
            say(&format!("published at `{url}`: generation {generation}, {entries} entries"));
        }
        Ok(())
    }
}

/// What a run does with its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheUse {
    /// It keeps its decisions there.
    Keeps,
    /// It decides without it.
    Ignores,
    /// It says what is known, and decides nothing.
    Looks,
}

/// Opens the cache of a run. It is opened for writing if the run keeps its decisions; a URL's folder is a tier above
/// the published snapshot.
pub(super) fn open_run(args: &CacheArgs, signing: &SignerArgs, how: CacheUse) -> Result<RunCache, Fault> {
    let folder = folder(args);
    let (ledger, shared) = match (address(args)?, how) {
        (Some(address), CacheUse::Ignores | CacheUse::Looks) => (open_url_for_reading(address, args)?, None),
        (None, CacheUse::Looks) if folder.as_ref().is_ok_and(|folder| folder.exists()) => {
            (open_for_reading(args)?, None)
        }
        (None, CacheUse::Ignores | CacheUse::Looks) => (Ledger::in_memory(shipped(args)), None),
        (None, CacheUse::Keeps) => (open(args)?, None),
        (Some(address), CacheUse::Keeps) => {
            let (folder, shipped) = (folder_of(&address)?, shipped(args));
            let mut options = shared_options(args)?;
            options.signer = signing.signer(options.keys.as_ref())?;
            let (shared, ledger, news) = SharedRun::open(address, &folder, options, shipped)?;
            tell_news(&news);
            tell(&ledger);
            (ledger, Some(shared))
        }
    };
    Ok(RunCache { ledger, folder: folder.ok(), shared })
}

/// Opens a cache folder for look-ups only: another process may hold its lock.
pub(super) fn open_for_reading(args: &CacheArgs) -> Result<Ledger, Fault> {
    if let Some(address) = address(args)? {
        return open_url_for_reading(address, args);
    }
    let folder = folder(args)?;
    if args.is_named.0 && matches!(folder.try_exists(), Ok(false)) {
        // a mistyped name would pass for an empty cache
        let message =
            format!("there is no cache `{}`: name another one with `--cache`, or tune into it", folder.display());
        return Err(Fault::new(exit::CACHE_TROUBLE, message));
    }
    let ledger = Ledger::open_for_reading(&folder, || shipped(args))?;
    tell(&ledger);
    Ok(ledger)
}

/// Opens the ledger of a cache folder and reports on stderr what was wrong with it.
pub(super) fn open(args: &CacheArgs) -> Result<Ledger, Fault> {
    if let Some(address) = address(args)? {
        let message = format!(
            "`{address}` can only be changed by publishing: change a folder, then `autotune-lowered cache push \
             --replace {address}`"
        );
        return Err(Fault::new(exit::USAGE, message));
    }
    let ledger = Ledger::open(&folder_to_write(args)?, shipped(args))?;
    tell(&ledger);
    Ok(ledger)
}

/// The cache folder, to be changed.
pub(super) fn folder_to_write(args: &CacheArgs) -> Result<PathBuf, Fault> {
    let folder = folder(args)?;
    if folder.exists() && !folder.is_dir() {
        let message =
            format!("`{}` is a file, and a snapshot is only read: name a folder with `--cache`", folder.display());
        return Err(Fault::new(exit::CACHE_TROUBLE, message));
    }
    Ok(folder)
}

pub(super) fn tell(ledger: &Ledger) {
    for note in ledger.notes() {
        tracing::warn!("{note}");
    }
}

/// The URL that `--cache` names, unless it names a folder.
pub(super) fn address(args: &CacheArgs) -> Result<Option<Address>, Fault> {
    Ok(match place(args)? {
        Some(CachePlace::Shared(address)) => Some(address),
        Some(CachePlace::Local(_)) | None => None,
    })
}

fn place(args: &CacheArgs) -> Result<Option<CachePlace>, Fault> {
    Ok(args.folder.as_deref().map(CachePlace::parse).transpose()?)
}

/// This machine's folder for a URL: a copy of it, and what is tuned here.
pub(super) fn folder_of(address: &Address) -> Result<PathBuf, Fault> {
    Ok(native_folder()?.join("remote").join(address.to_folder_name()))
}

/// Requirements for the content of a URL.
fn shared_options(args: &CacheArgs) -> Result<SharedOptions, Fault> {
    Ok(SharedOptions { keys: public_keys(args.verify_key.as_deref())?, pin: args.pin, signer: None })
}

pub(super) fn tell_news(news: &LoadNotes) {
    for warning in &news.warnings {
        tracing::warn!("{warning}");
    }
    for detail in &news.details {
        tracing::info!("{detail}");
    }
}

/// The tiers for look-ups in a URL: the published snapshot, and the shipped configs.
fn open_url_for_reading(address: Address, args: &CacheArgs) -> Result<Ledger, Fault> {
    let folder = folder_of(&address)?;
    let (ledger, news) = remote::open_for_reading(address, &folder, &shared_options(args)?, shipped(args))?;
    tell_news(&news);
    Ok(ledger)
}
