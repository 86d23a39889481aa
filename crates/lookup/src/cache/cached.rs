//! A whole cache to merge or compare, with its entries in one form regardless of its source.

use std::cmp::Ordering;
use std::sync::Arc;

use super::entry::Entry;
use super::error::StoreError;
use super::key::CacheKey;
use super::row::{EntryRow, EntryRows};
use super::snapshot::{Snapshot, SnapshotStore};

/// The entries of one cache.
#[derive(Debug)]
pub enum Cached {
    /// A snapshot, read in place.
    Snapshot(Box<SnapshotStore>),
    /// Entries in memory, in any order; among equal keys the last counts.
    Entries(Vec<(CacheKey, Arc<Entry>)>),
}

impl Cached {
    /// A snapshot's.
    pub fn of_snapshot(snapshot: Snapshot) -> Self {
        Self::Snapshot(Box::new(SnapshotStore::new(snapshot)))
    }

    /// Entries as stores give them, in the keys' order, each key once.
    ///
    /// # Errors
    /// If a record of a snapshot is damaged.
    pub fn to_entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.rows()?.iter().map(EntryRow::to_pair).collect()
    }

    /// The same without what may not be [published](Entry::is_publishable), and how many entries that leaves out.
    ///
    /// # Errors
    /// As [`to_entries`](Self::to_entries).
    pub fn publishable(self) -> Result<(Self, usize), StoreError> {
        let rows = self.rows()?;
        let is_measured =
            |row: &&EntryRow<'_>| !row.may_be_private() || !row.to_entry().is_ok_and(|entry| !entry.is_publishable());
        let measured: Vec<_> = rows.iter().filter(is_measured).collect();
        let skipped = rows.len() - measured.len();
        if skipped == 0 {
            return Ok((self, 0));
        }
        let measured = measured.into_iter().map(EntryRow::to_pair).collect::<Result<_, _>>()?;
        Ok((Self::Entries(measured), skipped))
    }

    /// Every entry in place, in the keys' order, each key once.
    ///
    /// # Errors
    /// If an entry of a snapshot is damaged.
    pub fn rows(&self) -> Result<Vec<EntryRow<'_>>, StoreError> {
        match self {
            Self::Snapshot(store) => rows_of_snapshot(store.snapshot()),
            Self::Entries(entries) => Ok(EntryRows::of_entries(entries).rows),
        }
    }
}

fn rows_of_snapshot(snapshot: &Snapshot) -> Result<Vec<EntryRow<'_>>, StoreError> {
    let rows: Vec<EntryRow<'_>> = snapshot.records().map(|record| snapshot.row(&record?)).collect::<Result<_, _>>()?;
    let is_in_order = rows.is_sorted_by(|a, b| a.compare_keys(b) == Ordering::Less);
    if is_in_order {
        Ok(rows)
    } else {
        Err(StoreError::snapshot(snapshot.path(), "its records are not in their order"))
    }
}
