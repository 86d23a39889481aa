//! Checks every byte of a cache against its checksums, and its stores against each other; changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cache::diff;
use crate::cache::{CacheKey, Cached, Entry, FolderLock, SNAPSHOT_FILE, Snapshot};
use crate::counted::counted;
use crate::digest::SetDigest;
use crate::exchange::import_json;
use crate::io_hint::scratch_hint;
use crate::mapped_file::Mapping;
use crate::samples::{LogError, Replay, SampleLog};
use crate::scratch::Scratch;
use crate::signature::{PublicKeys, SignatureError, Signatures};
use crate::sled_store::{SledCondition, SledState, SledStore};

use super::repair::LOG_FILE;
use super::stored::{StoredError, StoredKind, entries_of, kind_of, log_findings};

/// The findings for one file, or one database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// Its path.
    pub path: PathBuf,
    /// Its kind; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<StoredKind>,
    /// Entries that could be read.
    pub entries: usize,
    /// What is wrong, and where.
    pub problems: Vec<String>,
    /// Whether its bytes are good, and the only problem is that no key in use vouches for them.
    pub untrusted: bool,
    /// Notes that are not errors.
    pub notes: Vec<String>,
}

impl Verified {
    fn new(path: &Path, kind: Option<StoredKind>) -> Self {
        Self { path: path.to_owned(), kind, entries: 0, problems: Vec::new(), untrusted: false, notes: Vec::new() }
    }

    /// Checks the signature beside a snapshot; other kinds have no signature, and are not a snapshot that a key vouches
    /// for.
    pub fn check_signature(&mut self, keys: &PublicKeys) {
        match self.signer(keys) {
            Ok(key) => self.notes.push(format!("signed by {key}")),
            Err(problem) => {
                self.untrusted = self.problems.is_empty();
                self.problems.push(problem);
            }
        }
    }

    fn signer(&self, keys: &PublicKeys) -> Result<String, String> {
        if self.kind != Some(StoredKind::Snapshot) {
            return Err("only snapshots are signed".to_owned());
        }
        let signatures = Signatures::read_beside(&self.path).map_err(|error| match error {
            // the error names an option of other commands
            SignatureError::Missing { .. } => "it is not signed; sign it with `autotune-lowered cache sign`".to_owned(),
            error => error.to_string(),
        })?;
        let snapshot = Snapshot::open(&self.path, Mapping::Never).map_err(|error| error.to_string())?;
        let name = self.path.display().to_string();
        signatures.check(snapshot.digest(), keys, &name).map_err(|error| error.to_string())
    }

    fn problem(mut self, what: impl ToString) -> Self {
        self.problems.push(what.to_string());
        self
    }
}

/// Checks a snapshot, a sample log, a JSON file, or all of these in a cache folder and its sled database.
pub fn verify_cache(path: &Path) -> Vec<Verified> {
    match kind_of(path) {
        Err(error) => vec![Verified::new(path, None).problem(error)],
        Ok(StoredKind::Folder) => verify_folder(path),
        Ok(StoredKind::Snapshot) => vec![verify_snapshot(path).0],
        Ok(StoredKind::SampleLog) => vec![verify_log(path, SampleLog::read_named(path)).0],
        Ok(_) => vec![verify_json(path)],
    }
}

fn verify_snapshot(path: &Path) -> (Verified, Option<Cached>) {
    let mut found = Verified::new(path, Some(StoredKind::Snapshot));
    let snapshot = match Snapshot::open(path, Mapping::Never) {
        Ok(snapshot) => snapshot,
        Err(error) => return (found.problem(error), None),
    };
    if let Err(error) = snapshot.verify() {
        return (found.problem(error), None);
    }
    let cached = Cached::of_snapshot(snapshot);
    match cached.to_entries() {
        Ok(entries) => found.entries = entries.len(),
        Err(error) => return (found.problem(error), None),
    }
    (found, Some(cached))
}

type LogContent = Option<(Vec<(CacheKey, Arc<Entry>)>, SetDigest)>;

fn verify_log(path: &Path, read: Result<Replay, LogError>) -> (Verified, LogContent) {
    let mut found = Verified::new(path, Some(StoredKind::SampleLog));
    let replay = match read {
        Ok(replay) => replay,
        Err(error) => return (found.problem(error), None),
    };
    let findings = log_findings(&replay);
    (found.problems, found.notes) = (findings.problems, findings.notes);
    match entries_of(path, &replay) {
        Ok(entries) => {
            found.entries = entries.len();
            (found, Some((entries, replay.committed)))
        }
        Err(error) => (found.problem(error), None),
    }
}

fn verify_json(path: &Path) -> Verified {
    let mut found = Verified::new(path, Some(StoredKind::Json));
    match import_json(path) {
        Ok(entries) => {
            let keys: BTreeSet<&CacheKey> = entries.iter().map(|(key, _)| key).collect();
            found.entries = keys.len();
            if keys.len() < entries.len() {
                let repeated = entries.len() - keys.len();
                found.notes.push(format!("{repeated} entries belong to a call that has another one; the last counts"));
            }
            found
        }
        Err(error) => found.problem(error),
    }
}

fn verify_folder(root: &Path) -> Vec<Verified> {
    let (log_path, snapshot_path) = (root.join(LOG_FILE), root.join(SNAPSHOT_FILE));
    let sled_state = SledState::of_folder(root);
    let mut all = Vec::new();
    let mut content = None;
    if log_path.exists() {
        let (found, log) = verify_log(&log_path, SampleLog::read(&log_path));
        content = log;
        all.push(found);
    }
    if sled_state != SledState::Missing {
        all.push(verify_sled(root, sled_state, content.as_ref().map(|(_, digest)| *digest)));
    }
    if snapshot_path.exists() {
        let (mut found, published) = verify_snapshot(&snapshot_path);
        if let (Some(published), Some((entries, _))) = (published, content) {
            match diff(&published, &Cached::Entries(entries)).map(|diff| diff.differences.len()) {
                Ok(0) => {}
                Ok(count) => found.notes.push(format!(
                    "it was published before the last decisions: {} not as in the sample log",
                    counted(count, "entry")
                )),
                Err(error) => found.problems.push(error.to_string()),
            }
        }
        all.push(found);
    }
    if all.is_empty() {
        all.push(Verified::new(root, None).problem(StoredError::NoCache(root.to_owned())));
    }
    all
}

/// The database's bytes against the digest of its last close, then a copy's entries against the sample log.
fn verify_sled(root: &Path, state: SledState, log: Option<SetDigest>) -> Verified {
    let [folder, _] = SledState::NAMES;
    let mut found = Verified::new(&root.join(folder), Some(StoredKind::Sled));
    match state {
        SledState::Missing => found,
        SledState::Wrong(what) => found.problem(what),
        SledState::Open => {
            let why = match FolderLock::holder(root) {
                Some(holder) => format!("it is in use by {holder} and cannot be checked meanwhile"),
                None => "it was not closed; it is rebuilt from the sample log when it is next opened".to_owned(),
            };
            found.notes.push(why);
            found
        }
        SledState::Closed => match content_of_copy(root) {
            Err(what) => found.problem(what),
            Ok(content) => {
                found.entries = usize::try_from(content.count).unwrap_or(usize::MAX);
                match log {
                    Some(log) if log != content => {
                        found.problem(format!("its entries are not those of the sample log, which gives {}", log.count))
                    }
                    _ => found,
                }
            }
        },
    }
}

/// sled writes into a folder that it opens, so only a copy may be opened here.
fn content_of_copy(root: &Path) -> Result<SetDigest, String> {
    let scratch = Scratch::new().map_err(|error| format!("a copy cannot be made: {error}{}", scratch_hint(&error)))?;
    let [folder, state] = SledState::NAMES;
    copy_folder(&root.join(folder), &scratch.path().join(folder))
        .and_then(|()| fs::copy(root.join(state), scratch.path().join(state)))
        .map_err(|error| format!("a copy cannot be made: {error}{}", scratch_hint(&error)))?;
    match SledStore::open(scratch.path(), true) {
        Ok((store, SledCondition::Clean)) => Ok(store.content()),
        Ok((_, SledCondition::SetAside { reason, .. })) => Err(reason),
        Ok(_) => Err("it changed while it was read".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = folders.pop() {
        fs::create_dir(&to)?;
        for item in fs::read_dir(&from)? {
            let item = item?;
            let (source, target) = (item.path(), to.join(item.file_name()));
            // its digest was right: there are no links
            if item.file_type()?.is_dir() {
                folders.push((source, target))
            } else {
                fs::copy(source, target).map(drop)?
            }
        }
    }
    Ok(())
}
