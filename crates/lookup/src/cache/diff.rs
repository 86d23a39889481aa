//! Compares two caches: which entries only one has, and which differ.

use std::cmp::Ordering;
use std::sync::Arc;

use super::cached::Cached;
use super::entry::Entry;
use super::error::StoreError;
use super::key::CacheKey;
use super::row::EntryRow;

/// The differences between two caches.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct CacheDiff {
    /// In the keys' order.
    pub differences: Vec<EntryDifference>,
    /// Entries that are the same in both.
    pub same: usize,
}

/// One key whose entries differ.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryDifference {
    /// The key.
    pub key: CacheKey,
    /// The first cache's entry.
    pub before: Option<Arc<Entry>>,
    /// The second one's.
    pub after: Option<Arc<Entry>>,
}

/// How the entries of a key differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EntryChange {
    /// Only the second cache has one.
    Added,
    /// Only the first cache has one.
    Removed,
    /// Another config.
    Config,
    /// The same config on other evidence.
    Evidence,
}

impl EntryDifference {
    /// How they differ.
    pub fn change(&self) -> EntryChange {
        match (&self.before, &self.after) {
            (None, _) => EntryChange::Added,
            (_, None) => EntryChange::Removed,
            (Some(before), Some(after)) if before.config != after.config => EntryChange::Config,
            _ => EntryChange::Evidence,
        }
    }
}

/// The changes from the first cache to the second.
///
/// # Errors
/// If an entry of a snapshot is damaged.
pub fn diff(before: &Cached, after: &Cached) -> Result<CacheDiff, StoreError> {
    let (before, after) = (before.rows()?, after.rows()?);
    let (mut left, mut right) = (before.iter().peekable(), after.iter().peekable());
    let mut found = CacheDiff::default();
    let entry = |row: Option<&EntryRow<'_>>| row.map(|row| row.to_pair()).transpose();
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) => a.compare_keys(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(found),
        };
        let a = if order == Ordering::Greater { None } else { left.next() };
        let b = if order == Ordering::Less { None } else { right.next() };
        if let (Some(a), Some(b)) = (a, b)
            && a.has_text_of(b)
        {
            found.same += 1;
            continue;
        }
        let (before, after) = (entry(a)?, entry(b)?);
        let Some(key) = before.as_ref().or(after.as_ref()).map(|(key, _)| key.clone()) else { continue };
        let of = |pair: Option<(CacheKey, Arc<Entry>)>| pair.map(|(_, entry)| entry);
        found.differences.push(EntryDifference { key, before: of(before), after: of(after) });
    }
}
