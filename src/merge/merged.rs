//! Several caches and their merge.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::claim::settle;
use crate::cache::{COMPILER_OPTIONS, CacheKey, Cached, Entry, EntryRow, EntryRows, StoreError, refuse, write_rows};
use crate::digest::Digest;

/// The merge of several caches; entries that agree stay where they were read.
#[derive(Debug)]
pub struct Merged<'a> {
    rows: EntryRows<'a>,
    settled: usize,
}

/// Merges caches, in whatever order they are given.
///
/// # Errors
/// If an entry of a snapshot is damaged, or sets what no entry may.
pub fn merge(caches: &[Cached]) -> Result<Merged<'_>, StoreError> {
    let read: Vec<Vec<EntryRow<'_>>> = caches.par_iter().map(Cached::rows).collect::<Result<_, _>>()?;
    let mut rows = Vec::with_capacity(read.iter().map(Vec::len).sum());
    read.into_iter().for_each(|mut of_one| rows.append(&mut of_one));
    let EntryRows { rows, operations, devices } = EntryRows::of(rows);
    let calls: Vec<&[EntryRow<'_>]> = rows.chunk_by(|a, b| a.compare_keys(b) == Ordering::Equal).collect();
    let rows: Vec<(EntryRow<'_>, bool)> = calls.into_par_iter().map(settle_rows).collect::<Result<_, _>>()?;
    for (row, _) in rows.iter().filter(|(row, _)| row.key.op_id == COMPILER_OPTIONS) {
        refuse(row.key, &row.to_entry()?.config)?;
    }
    let settled = rows.iter().filter(|(_, settled)| *settled).count();
    let rows = rows.into_iter().map(|(row, _)| row).collect();
    Ok(Merged { rows: EntryRows { rows, operations, devices }, settled })
}

/// The merge of one call's rows, and whether they differ.
fn settle_rows<'a>(rows: &[EntryRow<'a>]) -> Result<(EntryRow<'a>, bool), StoreError> {
    if let [first, others @ ..] = rows
        && others.iter().all(|other| other.has_text_of(first))
    {
        return Ok((first.clone(), false));
    }
    let texts: Vec<_> = rows.iter().map(EntryRow::text).collect();
    Ok((settle(rows, &texts)?, true))
}

impl Merged<'_> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.rows.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many calls the caches held different entries.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// Publishes the merge as a snapshot and returns its digest.
    ///
    /// # Errors
    /// If the file cannot be written; then its old content is intact.
    pub fn write_snapshot(&self, path: &Path) -> Result<Digest, StoreError> {
        write_rows(path, &self.rows)
    }

    /// The entries, in the keys' order.
    ///
    /// # Errors
    /// If a record of a snapshot is not an entry.
    pub fn to_entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.rows.rows.par_iter().map(EntryRow::to_pair).collect()
    }
}
