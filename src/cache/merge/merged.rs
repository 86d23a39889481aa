//! The caches side by side, and what they make together.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::claim::{add_claims, is_superseding, settle};
use crate::cache::cached::{Cached, Row};
use crate::cache::snapshot::{Recorded, entry_of, write_sorted};
use crate::cache::{CacheKey, Entry, StoreError};
use crate::call::Direction;
use crate::device::DeviceIdentity;
use crate::digest::Digest;

/// What several caches make together; entries that agree are still where they were read.
#[derive(Debug)]
pub struct Merged<'a> {
    items: Vec<Item<'a>>,
}

#[derive(Debug)]
struct Item<'a> {
    row: Row<'a>,
    /// Config and origin, where the caches do not agree.
    settled: Option<(String, String)>,
}

/// Merges caches, in whatever order they are given.
///
/// # Errors
/// Where an entry of a snapshot is damaged.
pub fn merge(caches: &[Cached]) -> Result<Merged<'_>, StoreError> {
    let read: Vec<Vec<Row<'_>>> = caches.par_iter().map(Cached::rows).collect::<Result<_, _>>()?;
    let mut rows = read.concat();
    drop(read);
    // a stable sort finds the runs that are sorted already
    rows.par_sort_by(Row::compare_keys);
    let calls: Vec<&[Row<'_>]> = rows.chunk_by(|a, b| a.compare_keys(b) == Ordering::Equal).collect();
    let items = calls.into_par_iter().filter_map(|rows| settle_rows(rows).transpose()).collect::<Result<_, _>>()?;
    Ok(Merged { items })
}

/// The rows of one call.
fn settle_rows<'a>(rows: &[Row<'a>]) -> Result<Option<Item<'a>>, StoreError> {
    let Some((first, others)) = rows.split_first() else { return Ok(None) };
    let is_first = |row: &Row<'_>| row.config == first.config && row.origin() == first.origin();
    if others.iter().all(is_first) {
        return Ok(Some(Item { row: *first, settled: None }));
    }
    let mut texts: Vec<_> = rows.iter().map(|row| (row.config, row.origin(), row)).collect();
    texts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    texts.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
    let mut claims = Vec::new();
    for (config, origin, row) in &texts {
        add_claims(config, origin, &mut claims).ok_or_else(|| row.unreadable())?;
    }
    Ok(settle(claims).map(|settled| Item { row: *first, settled: Some(settled) }))
}

impl Merged<'_> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Of how many calls the caches held different entries.
    pub fn settled(&self) -> usize {
        self.items.iter().filter(|item| item.settled.is_some()).count()
    }

    /// Publishes what they make as a snapshot and gives its digest.
    ///
    /// # Errors
    /// Where the file cannot be written; what was there before is there still.
    pub fn write_snapshot(&self, path: &Path) -> Result<Digest, StoreError> {
        write_sorted(path, &self.items)
    }

    /// The entries, in the keys' order.
    ///
    /// # Errors
    /// Where a record of a snapshot is no entry.
    pub fn to_entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.items.par_iter().map(Item::to_pair).collect()
    }
}

impl Item<'_> {
    fn to_pair(&self) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        match &self.settled {
            None => self.row.to_pair(),
            Some((config, origin)) => {
                let entry = entry_of(config, origin).ok_or_else(|| self.row.unreadable())?;
                Ok((self.row.to_key(), Arc::new(entry)))
            }
        }
    }
}

impl Recorded for Item<'_> {
    fn op_id(&self) -> &str {
        self.row.op_id
    }

    fn call_key(&self) -> &str {
        self.row.call_key
    }

    fn device(&self) -> &DeviceIdentity {
        self.row.device
    }

    fn direction(&self) -> Direction {
        self.row.direction
    }

    fn config(&self) -> &str {
        self.settled.as_ref().map_or(self.row.config, |(config, _)| config)
    }

    fn put_origin(&self, out: &mut Vec<u8>) -> io::Result<bool> {
        match &self.settled {
            None => self.row.put_origin(out),
            Some((_, origin)) => {
                out.extend(origin.as_bytes());
                Ok(is_superseding(origin))
            }
        }
    }
}
