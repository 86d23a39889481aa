//! Opens a cache folder: damage in its stores is detected, reported, and repaired from the intact ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cache::{Entry, FolderLock, SNAPSHOT_FILE, Snapshot, StoreError};
use crate::counted::counted;
use crate::mapped_file::Mapping;
use crate::samples::{Damage, LogRecord, SampleLog};
use crate::sled_store::{SledCondition, SledStore};

use super::error::LedgerError;

/// Name of the sample log inside a cache folder.
pub const LOG_FILE: &str = "samples-v1.log";

/// The stores of a folder, which agree.
pub(super) struct RepairedStores {
    pub(super) log: SampleLog,
    pub(super) sled: SledStore,
    /// Problems and how they were repaired, one line each.
    pub(super) notes: Vec<String>,
}

/// Keys and entries, as text.
type Texts = Vec<(String, String)>;

/// Opens log and sled of the locked folder and makes them agree; with `rebuild` sled is always rebuilt.
pub(super) fn repair(root: &Path, lock: &FolderLock, rebuild: bool) -> Result<RepairedStores, LedgerError> {
    lock.remove_unfinished();
    let path = root.join(LOG_FILE);
    let found_bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let mut log = SampleLog::open(&path)?;
    let mut notes = Vec::new();
    note_damage(&mut log, &mut notes)?;
    // an existing log can restore everything that an unclosed sled held; a missing one cannot
    let log_is_whole = log.replay().is_consistent() && !log.replay().is_new;
    let (mut sled, mut condition) = SledStore::open(root, !log_is_whole)?;
    if rebuild && condition == SledCondition::Clean {
        (sled, condition) = sled.replace("it is rebuilt")?;
    }
    let noted = sled.noted_log_bytes().unwrap_or(0);
    // a truncation between two records leaves no other trace
    let is_cut = condition == SledCondition::Clean && found_bytes < noted;
    if is_cut && !log.replay().is_new {
        let path = log.path().display();
        notes.push(format!("`{path}` was truncated: it has {found_bytes} bytes, {noted} were written"));
    }
    if condition == SledCondition::Clean && sled.content() != log.replay().committed {
        // sled was closed after the log's last write, so it still holds what a damaged or lost log lacks
        let is_proven = sled.content() == log.replay().stated;
        if is_proven || is_cut || log.replay().may_lack_decisions() {
            let lost_from = is_cut.then_some(found_bytes);
            let adopted = adopt(&sled.texts()?, &mut log, is_proven, lost_from)?;
            if !is_proven {
                fill(&sled, &log)?;
            }
            notes.push(format!("the sample log had lost {adopted} decisions; the sled cache still held them"));
        } else {
            (sled, condition) = sled.replace("its entries are not those that the sample log states")?;
        }
    }
    if condition != SledCondition::Clean {
        // everything that was published had been in the log
        let adopted = adopt(&published(&root.join(SNAPSHOT_FILE), &mut notes), &mut log, false, None)?;
        if adopted > 0 {
            notes.push(format!("the sample log had lost {adopted} decisions; the snapshot still held them"));
        }
        refill(&sled, &log, &condition, &mut notes)?;
    }
    Ok(RepairedStores { log, sled, notes })
}

/// The snapshot's entries, if it is intact.
fn published(path: &Path, notes: &mut Vec<String>) -> Texts {
    let read = || -> Result<Texts, StoreError> {
        let snapshot = Snapshot::open(path, Mapping::Never)?;
        snapshot.verify()?;
        let mut texts = Texts::new();
        for record in snapshot.records() {
            let record = record?;
            if let Ok(entry) = snapshot.entry(&record) {
                texts.push((record.key.to_key().to_text(), entry.to_text()));
            }
        }
        Ok(texts)
    };
    match read() {
        Ok(texts) => texts,
        Err(error) if error.is_not_found() => Texts::new(),
        Err(error) => {
            notes.push(format!("{}; the next publication replaces it", error.without_advice()));
            Texts::new()
        }
    }
}

/// Reports each damage once, because an old torn line stays forever.
fn note_damage(log: &mut SampleLog, notes: &mut Vec<String>) -> Result<(), LedgerError> {
    let path = log.path().display().to_string();
    let noted_until = log.replay().noted_until;
    let new: Vec<Damage> = log.replay().damage.iter().filter(|damage| damage.offset >= noted_until).copied().collect();
    for Damage { offset, bytes, torn_tail } in &new {
        if *torn_tail {
            notes.push(format!(
                "`{path}` ends in an incomplete record of {bytes} bytes; everything before it is intact"
            ));
        } else {
            notes.push(format!("`{path}` is damaged at byte {offset} ({bytes} bytes); the rest is read"));
        }
    }
    if log.replay().unknown > 0 {
        let unknown = counted(log.replay().unknown, "record");
        notes.push(format!("`{path}` holds {unknown} unknown to this version"));
    }
    if let Some(until) = new.iter().map(|damage| damage.offset + damage.bytes).max() {
        log.append(&LogRecord::Noted { until })?;
    }
    Ok(())
}

/// Writes into the log what another store holds and the log lost. If that store is `proven` to be what the log once
/// stated, the log becomes equal to it; otherwise entries that only the log holds are kept, and so are its decisions
/// after all damage. The end of a truncated log may be known.
fn adopt(texts: &Texts, log: &mut SampleLog, proven: bool, cut_at: Option<u64>) -> Result<u64, LedgerError> {
    let entries = &log.replay().entries;
    let other: BTreeMap<&str, &str> = texts
        .iter()
        .filter(|(key, value)| {
            entries.get(key).is_none_or(|known| known != value && (proven || !is_same(known, value)))
        })
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    // the log's order says which of two decisions came later: a clock may jump
    let decisions = if proven { BTreeMap::new() } else { log.decisions_of(&other.keys().copied().collect())? };
    let last_damage = log.replay().damage.iter().map(|damage| damage.offset).chain(cut_at).max();
    let is_lost = |key: &str, value: &str| {
        let Some(decisions) = decisions.get(key) else { return true };
        // the other store missed a later one, if the log mentions what it holds
        let is_known = decisions.iter().any(|(_, held)| held.as_ref().is_some_and(|held| is_same(held, value)));
        // if nothing is damaged, only the end can be missing
        !is_known && decisions.last().is_none_or(|(at, _)| last_damage.is_none_or(|damage| damage > *at))
    };
    let mut adopted = 0;
    for (key, value) in other.into_iter().filter(|(key, value)| is_lost(key, value)) {
        log.commit(None, key, value)?;
        adopted += 1;
    }
    if proven {
        let held: BTreeSet<&str> = texts.iter().map(|(key, _)| key.as_str()).collect();
        let removed = log.replay().entries.keys().filter(|key| !held.contains(key.as_str()));
        for key in removed.cloned().collect::<Vec<_>>() {
            log.remove(&key)?;
            adopted += 1;
        }
    }
    Ok(adopted)
}

/// Whether two texts are the same entry, which another version may spell differently.
fn is_same(a: &str, b: &str) -> bool {
    let entry = |text| serde_json::from_str::<Entry>(text).ok();
    a == b || entry(a).is_some_and(|a| entry(b) == Some(a))
}

fn fill(sled: &SledStore, log: &SampleLog) -> Result<(), StoreError> {
    let entries = log.replay().entries.iter();
    sled.put_texts(entries.map(|(key, value)| (key.as_str(), value.as_str())))
}

fn refill(
    sled: &SledStore,
    log: &SampleLog,
    condition: &SledCondition,
    notes: &mut Vec<String>,
) -> Result<(), StoreError> {
    fill(sled, log)?;
    let count = log.replay().entries.len();
    let entries = counted(count, "entry");
    match condition {
        SledCondition::SetAside { reason, moved_to } => notes.push(format!(
            "the sled cache was set aside as `{}` ({reason}); {entries} restored from the sample log",
            moved_to.display()
        )),
        SledCondition::Unclean => tracing::info!("the sled cache was not closed; {entries} restored"),
        _ if count > 0 => notes.push(format!("the sled cache was missing; {entries} restored")),
        _ => {}
    }
    if !log.replay().is_consistent() {
        let lost = log.replay().stated.count.saturating_sub(log.replay().committed.count);
        notes.push(format!(
            "decisions were lost with the damaged records ({} fewer); run the tuner again",
            counted(lost, "entry")
        ));
    }
    Ok(())
}
