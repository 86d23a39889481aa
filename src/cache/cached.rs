//! A whole cache to be merged or compared, and its entries side by side in one form, whatever it was read from.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::key::head;
use super::merge::is_superseding;
use super::snapshot::{Recorded, entry_of, put_origin};
use super::{CacheKey, Entry, Snapshot, SnapshotStore, StoreError};
use crate::call::Direction;
use crate::device::DeviceIdentity;

/// The entries of one cache.
#[derive(Debug)]
pub enum Cached {
    /// A snapshot, read in place.
    Snapshot(SnapshotStore),
    /// Entries in memory, in any order; of one key the last counts.
    Entries(Vec<(CacheKey, Arc<Entry>)>),
}

impl Cached {
    /// A snapshot's.
    pub fn of_snapshot(snapshot: Snapshot) -> Self {
        Self::Snapshot(SnapshotStore::new(snapshot))
    }

    /// Entries as stores give them, in the keys' order, each key once.
    ///
    /// # Errors
    /// Where a record of a snapshot is damaged.
    pub fn to_entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.rows()?.into_iter().map(Row::to_pair).collect()
    }

    /// How many entries there are, before those of one key are counted once.
    pub fn len(&self) -> usize {
        match self {
            Self::Snapshot(store) => usize::try_from(store.snapshot().len()).unwrap_or(usize::MAX),
            Self::Entries(entries) => entries.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every entry where it lies, in the keys' order, each key once.
    pub(super) fn rows(&self) -> Result<Vec<Row<'_>>, StoreError> {
        match self {
            Self::Snapshot(store) => rows_of_snapshot(store.snapshot()),
            Self::Entries(entries) => Ok(rows_of_entries(entries)),
        }
    }
}

fn rows_of_snapshot(snapshot: &Snapshot) -> Result<Vec<Row<'_>>, StoreError> {
    let damaged = |what: &str| StoreError::Snapshot { path: snapshot.path().to_owned(), what: what.to_owned() };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for record in snapshot.records() {
        let record = record?;
        let origin = snapshot.origin(&record)?;
        let row = Row {
            // neighbours share theirs: comparisons then touch few places of a large file
            op_id: rows.last().map(|last| last.op_id).filter(|last| *last == record.op_id).unwrap_or(record.op_id),
            call_key: record.call_key,
            key_head: head(record.call_key),
            direction: record.direction,
            device: record.device,
            config: record.config,
            origin: Origin::Text { text: origin, snapshot },
        };
        if rows.last().is_some_and(|last| last.compare_keys(&row) != Ordering::Less) {
            return Err(damaged("its records are not in their order"));
        }
        rows.push(row);
    }
    if rows.len() as u64 == snapshot.len() { Ok(rows) } else { Err(damaged("it has not the entries that it counts")) }
}

fn rows_of_entries(entries: &[(CacheKey, Arc<Entry>)]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = entries
        .iter()
        .map(|(key, entry)| Row {
            op_id: &key.op_id,
            call_key: &key.call_key,
            key_head: head(&key.call_key),
            direction: key.direction,
            device: &key.device,
            config: entry.config.as_str(),
            origin: Origin::Entry(entry),
        })
        .collect();
    if !rows.is_sorted_by(|a, b| a.compare_keys(b) == Ordering::Less) {
        // stable, thus the last of equal keys stays last, and only it is kept
        rows.sort_by(Row::compare_keys);
        rows.reverse();
        rows.dedup_by(|a, b| a.compare_keys(b) == Ordering::Equal);
        rows.reverse();
    }
    rows
}

/// One entry, where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) op_id: &'a str,
    pub(super) call_key: &'a str,
    /// Its first bytes, which mostly tell two apart without a look at where they lie.
    key_head: u64,
    pub(super) direction: Direction,
    pub(super) device: &'a DeviceIdentity,
    pub(super) config: &'a str,
    origin: Origin<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    Text { text: &'a str, snapshot: &'a Snapshot },
    Entry(&'a Arc<Entry>),
}

impl<'a> Row<'a> {
    /// As [`CacheKey`]s compare.
    pub(super) fn compare_keys(&self, other: &Self) -> Ordering {
        let same_op = std::ptr::eq(self.op_id, other.op_id);
        let by_op = if same_op { Ordering::Equal } else { self.op_id.cmp(other.op_id) };
        let by_call = by_op.then(self.key_head.cmp(&other.key_head)).then_with(|| self.call_key.cmp(other.call_key));
        by_call.then_with(|| self.direction.cmp(&other.direction)).then_with(|| {
            if std::ptr::eq(self.device, other.device) { Ordering::Equal } else { self.device.cmp(other.device) }
        })
    }

    /// All but the config, in the one spelling that snapshots have.
    pub(super) fn origin(&self) -> Cow<'a, str> {
        match self.origin {
            Origin::Text { text, .. } => Cow::Borrowed(text),
            Origin::Entry(entry) => {
                let mut text = Vec::new();
                // writing to memory does not fail, and JSON is UTF-8
                let _ = put_origin(entry, &mut text);
                Cow::Owned(String::from_utf8(text).unwrap_or_default())
            }
        }
    }

    pub(super) fn to_key(self) -> CacheKey {
        CacheKey {
            op_id: self.op_id.to_owned(),
            call_key: self.call_key.to_owned(),
            direction: self.direction,
            device: self.device.clone(),
        }
    }

    pub(super) fn to_pair(self) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        let key = self.to_key();
        let entry = match self.origin {
            Origin::Entry(entry) => Arc::clone(entry),
            Origin::Text { text, .. } => Arc::new(entry_of(self.config, text).ok_or_else(|| self.unreadable())?),
        };
        Ok((key, entry))
    }

    /// That the texts are no entry's.
    pub(super) fn unreadable(&self) -> StoreError {
        let path = match self.origin {
            Origin::Text { snapshot, .. } => snapshot.path().to_owned(),
            Origin::Entry(_) => PathBuf::from("memory"),
        };
        let what = format!("the entry of `{}:{}` is no config with its provenance", self.op_id, self.call_key);
        StoreError::Snapshot { path, what }
    }
}

impl Recorded for Row<'_> {
    fn op_id(&self) -> &str {
        self.op_id
    }

    fn call_key(&self) -> &str {
        self.call_key
    }

    fn device(&self) -> &DeviceIdentity {
        self.device
    }

    fn direction(&self) -> Direction {
        self.direction
    }

    fn config(&self) -> &str {
        self.config
    }

    fn put_origin(&self, out: &mut Vec<u8>) -> io::Result<bool> {
        match self.origin {
            Origin::Text { text, snapshot } => {
                out.extend(text.as_bytes());
                Ok(snapshot.supersedes() && is_superseding(text))
            }
            Origin::Entry(entry) => (&(self.to_key(), Arc::clone(entry))).put_origin(out),
        }
    }
}
