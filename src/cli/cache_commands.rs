//! `cache`: shows or removes cached configs.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;

use crate::cache::{CacheKey, Entry, Tier, write_shipped, write_snapshot};
use crate::counted::counted;
use crate::device::MatchMode;
use crate::ledger::{FolderBytes, Ledger};
use crate::measured_by::CacheState;
use crate::report::{CacheEntries, bytes_by_kind, class_of_options, name_of};

use super::cache_get::look_up;
use super::coverage::CoverageArgs;
use super::exchange::{ExportArgs, ImportArgs};
use super::fault::Fault;
use super::merge::{DiffArgs, MergeArgs};
use super::options::{CacheArgs, Format, FormatArg, HereArgs, cache_state};
use super::prune::PruneArgs;
use super::remote::{PullArgs, PushArgs};
use super::say::say;
use super::signature::{KeygenArgs, SignArgs};
use super::verify::VerifyArgs;
use super::{cache, coverage, device, exchange, exit, merge, prune, remote, signature, verify};

#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Print the best config of a call
    Get {
        /// Operation, `name@vN`
        op: String,
        /// Call key
        key: String,
        /// Which devices' results may apply to this device: exact, kind or any
        #[arg(long = "match", value_name = "MODE", default_value = "exact")]
        match_mode: MatchMode,
        /// State of the hardware's caches in the runs that the config is for; a config measured in the other one is
        /// flagged
        #[arg(long, value_parser = cache_state(), default_value = "warm")]
        cache_state: CacheState,
        #[command(flatten)]
        here: HereArgs,
        #[command(flatten)]
        cache: CacheArgs,
        #[command(flatten)]
        format: FormatArg,
    },
    /// List the configs of a cache folder or snapshot, and the folder's size on disk
    Ls {
        /// Include the shipped configs
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        cache: CacheArgs,
        #[command(flatten)]
        format: FormatArg,
    },
    /// Remove the entries of an operation, or of one of its calls, for every device
    Rm {
        /// Operation, `name@vN`
        op: String,
        /// Call key
        key: Option<String>,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Print the cache folder
    Path {
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Write the configs of a cache as those that are shipped: one file per device and operation, to be reviewed
    Shipped {
        /// Folder to write to
        out: PathBuf,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Publish the cache as one immutable file that any number of processes can read at once; prints its digest
    Snapshot {
        /// File to write
        out: PathBuf,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Write cached configs as JSON or as another tool's cache files
    Export(ExportArgs),
    /// Import configs from JSON or from another tool's cache files
    Import(ImportArgs),
    /// Load the snapshot published at a URL, unless this machine already has it; prints its digest and file
    Pull(PullArgs),
    /// Publish the cache at a URL, merged with its content; prints the digest
    Push(PushArgs),
    /// Make a pair of keys for signing snapshots
    Keygen(KeygenArgs),
    /// Sign a snapshot
    Sign(SignArgs),
    /// Merge caches: for each call the entry with the best evidence, keeping the other decisions (docs/caches.md)
    Merge(MergeArgs),
    /// List the differences between two caches; exit code 8 if there are any
    Diff(DiffArgs),
    /// Check every byte of caches; exit code 4 if one is damaged
    Verify(VerifyArgs),
    /// Remove entries that are too old, belong to a device, or were decided under other software
    Prune(PruneArgs),
    /// List which labels of a module have a config for a device; exit code 1 if one has none
    Coverage(CoverageArgs),
    /// Rebuild the sled cache from the sample log
    Rebuild {
        #[command(flatten)]
        cache: CacheArgs,
    },
}

/// Runs a `cache` command.
pub(super) fn run(command: &CacheCommand, out: &mut dyn Write) -> Result<u8, Fault> {
    match command {
        CacheCommand::Path { cache } => {
            // raw bytes, because scripts use them as a path
            out.write_all(cache::folder(cache)?.as_os_str().as_encoded_bytes())?;
            writeln!(out)?;
        }
        CacheCommand::Ls { all, cache, format } => list(*all, cache, format, out)?,
        CacheCommand::Rm { op, key, cache } => return remove(op, key.as_deref(), cache, out),
        CacheCommand::Shipped { out: folder, cache } => {
            for path in write_shipped(folder, &own_entries(cache)?)? {
                writeln!(out, "{}", path.display())?;
            }
        }
        CacheCommand::Snapshot { out: path, cache } => {
            let entries = own_entries(cache)?;
            let digest = write_snapshot(path, &entries)?;
            writeln!(out, "{digest}  {}", path.display())?;
            tracing::info!("{} in `{}`", counted(entries.len(), "entry"), path.display());
        }
        CacheCommand::Pull(args) => return remote::pull(args, out),
        CacheCommand::Push(args) => return remote::push(args, out),
        CacheCommand::Keygen(args) => return signature::keygen(args, out),
        CacheCommand::Sign(args) => return signature::sign(args, out),
        CacheCommand::Merge(args) => return merge::run_merge(args, out),
        CacheCommand::Diff(args) => return merge::run_diff(args, out),
        CacheCommand::Verify(args) => return verify::run(args, out),
        CacheCommand::Prune(args) => return prune::run(args, out),
        CacheCommand::Coverage(args) => return coverage::run(args, out),
        CacheCommand::Export(args) => return exchange::export(args, out),
        CacheCommand::Import(args) => return exchange::import(args, out),
        CacheCommand::Rebuild { cache } => {
            let ledger = Ledger::rebuild(&cache::folder_to_write(cache)?)?;
            cache::tell(&ledger);
            ledger.publish()?;
            writeln!(out, "{}", counted(ledger.cache().entries()?.len(), "entry"))?;
        }
        CacheCommand::Get { op, key, match_mode, cache_state, here, cache, format } => {
            let fingerprint = device::chosen(here)?;
            let hit = look_up(cache, (&fingerprint, here.is_replay()), (op, key), (*match_mode, cache_state))?;
            let hit = hit.map_err(|reason| Fault::new(exit::NOTHING_MATCHED, reason))?;
            for flag in &hit.flags {
                tracing::warn!("{}: {}", name_of(flag.kind), flag.detail);
            }
            if let Some(class) = class_of_options(&hit.key().to_key(), &hit.entry) {
                say(&format!("options of the class `{class}`"));
            }
            format.write(out, &hit)?;
        }
    }
    Ok(exit::FINE)
}

fn list(all: bool, cache: &CacheArgs, format: &FormatArg, out: &mut dyn Write) -> Result<(), Fault> {
    let mut entries = cache::open_for_reading(cache)?.cache().entries()?;
    entries.retain(|(.., tier)| all || *tier != Tier::Shipped);
    let folder = cache::folder(cache)?;
    let folder_bytes = folder.is_dir().then(|| FolderBytes::of(&folder));
    if entries.is_empty() && !folder.exists() {
        say(&format!("there is no cache folder `{}` yet: a run that tunes makes it", folder.display()));
    }
    format.write(out, CacheEntries::new(entries, folder_bytes))?;
    if let (Format::Table, Some(taken)) = (format.format, folder_bytes) {
        say(&format!("`{}` takes {}", folder.display(), bytes_by_kind(&taken)));
    }
    Ok(())
}

fn remove(op: &str, key: Option<&str>, cache: &CacheArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let ledger = cache::open(cache)?;
    let wanted = |entry: &CacheKey| entry.call.op_id == op && key.is_none_or(|key| entry.call.call_key == key);
    let keys: Vec<CacheKey> = ledger.cache().entries()?.into_iter().map(|(key, ..)| key).filter(wanted).collect();
    let removed = ledger.remove_all(&keys)?;
    ledger.publish()?;
    writeln!(out, "removed {removed}")?;
    Ok(if removed == 0 { exit::NOTHING_MATCHED } else { exit::FINE })
}

/// The entries of a cache, at least one: a mistyped folder must not replace what others read.
fn own_entries(cache: &CacheArgs) -> Result<Vec<(CacheKey, Arc<Entry>)>, Fault> {
    let entries = cache::open_for_reading(cache)?.own_entries()?;
    if entries.is_empty() {
        let message = "the cache is empty: tune a module first, or name another one with `--cache`";
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    Ok(entries)
}
