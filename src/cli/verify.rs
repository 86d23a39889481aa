//! `cache verify`: every byte of caches against what was written.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cache::Snapshot;
use crate::ledger::{StoredKind, Verified, verify_cache};
use crate::mapped_file::Mapping;
use crate::report::{Grid, write_json};
use crate::signature::{PublicKeys, Signatures};

use super::exit;
use super::fault::Fault;
use super::options::{Format, FormatArg};

/// Arguments of `cache verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Cache folders, snapshots, sample logs, and JSON files; they stay as they are
    #[arg(value_name = "CACHE", required = true)]
    pub caches: Vec<PathBuf>,
    /// Public key, or several: each snapshot must be signed by one of them (docs/trust.md)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Checks each cache; exit code 4 where one is not what was written.
pub(super) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let keys = args.key.as_deref().map(PublicKeys::read).transpose()?;
    let mut found: Vec<Verified> = args.caches.iter().flat_map(|path| verify_cache(path)).collect();
    if let Some(keys) = &keys {
        found.iter_mut().for_each(|found| check_signature(found, keys));
    }
    let problems: usize = found.iter().map(|found| found.problems.len()).sum();
    match args.format.format {
        Format::Json => write_json(out, &json!({"schema": 1, "checked": found}))?,
        Format::Table => {
            let mut grid = Grid::new(&["path", "kind", ">entries", "state"]);
            for Verified { path, kind, entries, problems, notes } in &found {
                let state = match (kind, problems.as_slice()) {
                    (_, []) => "good",
                    (None, _) => "unreadable",
                    (Some(_), _) => "damaged",
                };
                let kind =
                    kind.map_or_else(|| "—".to_owned(), |kind| json!(kind).as_str().unwrap_or_default().to_owned());
                grid.row([path.display().to_string(), kind, entries.to_string(), state.to_owned()]);
                problems.iter().for_each(|problem| grid.line(&format!("problem: {problem}")));
                notes.iter().for_each(|note| grid.line(&format!("note: {note}")));
            }
            grid.write(out)?;
        }
    }
    if problems == 0 {
        return Ok(exit::FINE);
    }
    out.flush()?;
    let damaged =
        found.iter().filter(|found| !found.problems.is_empty()).map(|found| format!("`{}`", found.path.display()));
    let damaged = damaged.collect::<Vec<_>>().join(", ");
    Err(Fault::input(format!("unreadable or not what was written: {damaged}; the problems are listed on stdout")))
}

/// A snapshot's signature, beside it; what else there is bears none, and is no snapshot that somebody vouches for.
fn check_signature(found: &mut Verified, keys: &PublicKeys) {
    if found.kind != Some(StoredKind::Snapshot) {
        found.problems.push("only snapshots are signed".to_owned());
        return;
    }
    let name = found.path.display().to_string();
    let signed = Signatures::read_beside(&found.path).map_err(Fault::from).and_then(|signatures| {
        let snapshot = Snapshot::open(&found.path, Mapping::Never)?;
        Ok(signatures.check(snapshot.digest(), keys, &name)?)
    });
    match signed {
        Ok(key) => found.notes.push(format!("signed by {key}")),
        Err(fault) => found.problems.push(fault.message),
    }
}
