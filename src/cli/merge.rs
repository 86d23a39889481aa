//! `cache merge` and `cache diff`: commands on several whole caches.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cache::{Cached, diff};
use crate::counted::counted;
use crate::exchange::export_json;
use crate::ledger::{Ledger, StoredCache, read_cache};
use crate::merge::{Merged, merge};

use super::fault::Fault;
use super::options::FormatArg;
use super::{cache, exit};

/// Arguments of `cache merge`.
#[derive(Debug, Args)]
pub(super) struct MergeArgs {
    /// Cache folders, snapshots, sample logs, and JSON files (`.json`, `.jsonl`); they are not changed
    #[arg(value_name = "CACHE", required = true)]
    pub caches: Vec<PathBuf>,
    /// What to write, by its name: `.snapshot`, `.json`, `.jsonl`, else a cache folder, whose own entries are merged
    /// too
    #[arg(short, long, value_name = "PATH")]
    pub out: PathBuf,
}

/// Arguments of `cache diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// A cache folder, snapshot, sample log or JSON file
    pub before: PathBuf,
    /// The cache to compare it with
    pub after: PathBuf,
    #[command(flatten)]
    pub format: FormatArg,
}

/// The kind of output that a name requests.
enum MergeOutput {
    Snapshot,
    Json,
    Folder,
}

/// Merges several caches and writes the result.
pub(super) fn run_merge(args: &MergeArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let output = output_of(&args.out)?;
    let is_output =
        |path: &Path| matches!((fs::canonicalize(path), fs::canonicalize(&args.out)), (Ok(a), Ok(b)) if a == b);
    // its own entries are always merged too, under its lock
    let inputs = args.caches.iter().filter(|path| !(matches!(output, MergeOutput::Folder) && is_output(path)));
    let mut caches: Vec<Cached> = Vec::new();
    for path in inputs {
        caches.push(open(path)?.cached);
    }
    match output {
        MergeOutput::Folder => merge_into_folder(caches, &args.out, out),
        MergeOutput::Snapshot | MergeOutput::Json => {
            let merged = merged(&caches)?;
            if matches!(output, MergeOutput::Snapshot) {
                let digest = merged.write_snapshot(&args.out)?;
                writeln!(out, "{digest}  {}", args.out.display())?;
            } else {
                export_json(&args.out, &merged.to_entries()?)?;
                writeln!(out, "{}", args.out.display())?;
            }
            Ok(exit::FINE)
        }
    }
}

/// A cache at a path; notes on it go to stderr.
pub(super) fn open(path: &Path) -> Result<StoredCache, Fault> {
    let stored = read_cache(path)?;
    for note in &stored.notes {
        tracing::warn!("{note}");
    }
    Ok(stored)
}

fn output_of(path: &Path) -> Result<MergeOutput, Fault> {
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => Ok(MergeOutput::Folder),
        Some("snapshot") => Ok(MergeOutput::Snapshot),
        Some("json" | "jsonl") => Ok(MergeOutput::Json),
        None if !path.exists() => Ok(MergeOutput::Folder),
        _ if !path.exists() && path.as_os_str().as_encoded_bytes().ends_with(b"/") => Ok(MergeOutput::Folder),
        _ => {
            let message = format!(
                "`{}` does not say what to write: end it in `.snapshot`, `.json` or `.jsonl`, or in `/` for a cache \
                 folder",
                path.display()
            );
            Err(Fault::new(exit::USAGE, message))
        }
    }
}

/// The caches as one; an error if they are empty, because that must not replace what others read.
fn merged(caches: &[Cached]) -> Result<Merged<'_>, Fault> {
    let merged = merge(caches).map_err(Fault::input)?;
    if merged.is_empty() {
        return Err(Fault::new(exit::NOTHING_MATCHED, "the caches are empty: there is nothing to merge"));
    }
    let (count, settled) = (merged.len(), merged.settled());
    tracing::info!("{count} entries of {} caches; {settled} of them differed", caches.len());
    Ok(merged)
}

fn merge_into_folder(mut caches: Vec<Cached>, folder: &Path, out: &mut dyn Write) -> Result<u8, Fault> {
    let ledger = Ledger::open(folder, Vec::new())?;
    cache::tell(&ledger);
    caches.push(Cached::Entries(ledger.own_entries()?));
    let changed = ledger.commit_changes(&merged(&caches)?.to_entries().map_err(Fault::input)?)?;
    ledger.publish()?;
    tracing::info!("{} new or changed", counted(changed, "entry"));
    writeln!(out, "{}", folder.display())?;
    Ok(exit::FINE)
}

/// Prints the differences between two caches; exit code 8 if there are any.
pub(super) fn run_diff(args: &DiffArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let (before, after) = (open(&args.before)?, open(&args.after)?);
    let found = diff(&before.cached, &after.cached).map_err(Fault::input)?;
    args.format.write(out, &found)?;
    Ok(if found.differences.is_empty() { exit::FINE } else { exit::DIFFERENT })
}
