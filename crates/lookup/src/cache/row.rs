//! One entry with its key, in place: the form in which snapshots are written and caches are merged and compared.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::entry::{Entry, EntryText, put_rest};
use super::error::StoreError;
use super::key::{CacheKey, KeyRef, head};
use crate::device::DeviceIdentity;

/// Number of rows per thread.
const SOME: usize = 1 << 9;

/// Rows in the keys' order, and the operations and devices that they name, each sorted. Equal ones are shared, so that
/// comparisons touch little memory.
#[derive(Debug)]
pub struct EntryRows<'a> {
    /// The rows.
    pub rows: Vec<EntryRow<'a>>,
    /// The operations they name.
    pub operations: Vec<&'a str>,
    /// The devices they name.
    pub devices: Vec<&'a DeviceIdentity>,
}

impl<'a> EntryRows<'a> {
    /// Rows in any order; those with the same key keep theirs.
    pub fn of(mut rows: Vec<EntryRow<'a>>) -> Self {
        let names: Vec<_> = rows.par_chunks_mut(SOME).map(share_with_neighbours).collect();
        let (operations, devices): (Vec<_>, Vec<_>) = names.into_iter().unzip();
        let (operations, devices) = (distinct(operations), distinct(devices));
        rows.par_chunks_mut(SOME).for_each(|rows| {
            let mut last: Option<(KeyRef<'a>, KeyRef<'a>)> = None;
            for EntryRow { key, .. } in rows {
                let known = last.filter(|(from, _)| from.is_named_alike(key)).map(|(_, to)| (to.op_id, to.device));
                let from = *key;
                (key.op_id, key.device) = known.unwrap_or_else(|| {
                    (of(&operations, key.op_id).unwrap_or(key.op_id), of(&devices, key.device).unwrap_or(key.device))
                });
                last = Some((from, *key));
            }
        });
        if !rows.is_sorted_by(|a, b| a.compare_keys(b) != Ordering::Greater) {
            rows.par_sort_by(EntryRow::compare_keys);
        }
        Self { rows, operations, devices }
    }

    /// Entries in memory, each key once: among equal ones the last counts.
    pub(super) fn of_entries(entries: &'a [(CacheKey, Arc<Entry>)]) -> Self {
        let mut rows = Vec::new();
        entries.par_iter().map(EntryRow::of_entry).collect_into_vec(&mut rows);
        let mut sorted = Self::of(rows);
        if !sorted.rows.is_sorted_by(|a, b| a.compare_keys(b) == Ordering::Less) {
            sorted.rows.reverse();
            sorted.rows.dedup_by(|a, b| a.compare_keys(b) == Ordering::Equal);
            sorted.rows.reverse();
        }
        sorted
    }
}

/// Shares operations and devices between neighbouring rows; returns them without consecutive repetitions.
fn share_with_neighbours<'a>(rows: &mut [EntryRow<'a>]) -> (Vec<&'a str>, Vec<&'a DeviceIdentity>) {
    let (mut operations, mut devices): (Vec<&str>, Vec<&DeviceIdentity>) = (Vec::new(), Vec::new());
    for EntryRow { key, .. } in rows {
        match operations.last() {
            Some(last) if *last == key.op_id => key.op_id = last,
            _ => operations.push(key.op_id),
        }
        match devices.last() {
            Some(last) if std::ptr::eq(*last, key.device) || *last == key.device => key.device = last,
            _ => devices.push(key.device),
        }
    }
    (operations, devices)
}

fn distinct<T: Ord + Copy>(parts: Vec<Vec<T>>) -> Vec<T> {
    let mut all = parts.concat();
    all.sort_unstable();
    all.dedup();
    all
}

fn of<T: Ord + Copy>(all: &[T], wanted: T) -> Option<T> {
    all.get(all.binary_search(&wanted).ok()?).copied()
}

/// One entry, in place.
#[derive(Debug, Clone)]
pub struct EntryRow<'a> {
    /// Whose entry it is.
    pub key: KeyRef<'a>,
    /// The first bytes of the call key, which usually distinguish two keys without reading them.
    head: u64,
    entry: EntrySource<'a>,
}

#[derive(Debug, Clone)]
enum EntrySource<'a> {
    /// In memory.
    Entry(&'a Arc<Entry>),
    /// In a snapshot.
    Text { text: EntryText<'a>, decided: u64, file: &'a PathBuf },
    /// Made by a merge.
    Settled(Box<MergedText>),
}

/// The text of a merged entry.
#[derive(Debug, Clone)]
pub struct MergedText {
    /// The entry as JSON, its config first.
    pub text: String,
    /// How many of its bytes are the config.
    pub config_bytes: usize,
    /// When it was decided, as a number to order by.
    pub decided: u64,
}

impl MergedText {
    fn parts(&self) -> Option<EntryText<'_>> {
        EntryText::split(&self.text, self.config_bytes)
    }
}

/// When an entry was decided, as a number to order by; zero if unknown.
pub(super) fn decided(entry: &Entry) -> u64 {
    entry.provenance.as_ref().map_or(0, |provenance| provenance.decided_at.saturating_add(1))
}

impl<'a> EntryRow<'a> {
    /// An entry in memory.
    pub(super) fn of_entry((key, entry): &'a (CacheKey, Arc<Entry>)) -> Self {
        Self { key: key.parts(), head: head(&key.call.call_key), entry: EntrySource::Entry(entry) }
    }

    /// A record of the snapshot in a file.
    pub(super) fn of_text(key: KeyRef<'a>, text: EntryText<'a>, decided: u64, file: &'a PathBuf) -> Self {
        Self { key, head: head(key.call_key), entry: EntrySource::Text { text, decided, file } }
    }

    /// The same call with the merged entry.
    pub fn settled(&self, settled: MergedText) -> Self {
        Self { entry: EntrySource::Settled(Box::new(settled)), ..*self }
    }

    /// As [`CacheKey`]s compare.
    pub fn compare_keys(&self, other: &Self) -> Ordering {
        let (one, other_key) = (&self.key, &other.key);
        let same_op = std::ptr::eq(one.op_id, other_key.op_id);
        let by_op = if same_op { Ordering::Equal } else { one.op_id.cmp(other_key.op_id) };
        let by_call = by_op.then(self.head.cmp(&other.head)).then_with(|| one.call_key.cmp(other_key.call_key));
        by_call.then_with(|| one.direction.cmp(&other_key.direction)).then_with(|| {
            if std::ptr::eq(one.device, other_key.device) { Ordering::Equal } else { one.device.cmp(other_key.device) }
        })
    }

    /// When it was decided, as a number to order by; zero if unknown.
    pub fn decided(&self) -> u64 {
        match &self.entry {
            EntrySource::Entry(entry) => decided(entry),
            EntrySource::Text { decided, .. } => *decided,
            EntrySource::Settled(settled) => settled.decided,
        }
    }

    /// Whether the entry may hold other decisions than its own.
    pub fn may_supersede(&self) -> bool {
        match &self.entry {
            EntrySource::Entry(entry) => !entry.superseded.is_empty(),
            // a parameter of the baseline may have that name
            EntrySource::Text { text, .. } => text.rest.contains("\"superseded\":["),
            EntrySource::Settled(settled) => settled.text.contains("\"superseded\":["),
        }
    }

    /// Whether the entry may be one that is not [published](Entry::is_publishable): a look at the text, which may find
    /// the words elsewhere.
    pub fn may_be_private(&self) -> bool {
        let is_named = |text: &str| text.contains("\"source\":\"replay\"") || text.contains("\"load\":\"contended\"");
        match &self.entry {
            EntrySource::Entry(entry) => !entry.is_publishable(),
            EntrySource::Text { text, .. } => is_named(text.rest),
            EntrySource::Settled(settled) => is_named(&settled.text),
        }
    }

    /// The entry as JSON, in the spelling of the stores.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.entry {
            EntrySource::Entry(entry) => Cow::Owned(entry.to_text()),
            EntrySource::Text { text, .. } => Cow::Owned(text.to_text()),
            EntrySource::Settled(settled) => Cow::Borrowed(&settled.text),
        }
    }

    /// Whether both entries have one text.
    pub fn has_text_of(&self, other: &Self) -> bool {
        match (&self.entry, &other.entry) {
            (EntrySource::Text { text, .. }, EntrySource::Text { text: other, .. }) => text == other,
            _ => self.text() == other.text(),
        }
    }

    /// The config as canonical JSON.
    pub(super) fn config(&self) -> &str {
        match &self.entry {
            EntrySource::Entry(entry) => entry.config.as_str(),
            EntrySource::Text { text, .. } => text.config,
            EntrySource::Settled(settled) => settled.parts().map_or("", |text| text.config),
        }
    }

    /// Appends what follows the config in the text.
    pub(super) fn put_rest(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match &self.entry {
            EntrySource::Entry(entry) => put_rest(entry, out)?,
            EntrySource::Text { text, .. } => out.extend(text.rest.as_bytes()),
            EntrySource::Settled(settled) => out.extend(settled.parts().map_or("", |text| text.rest).as_bytes()),
        }
        Ok(())
    }

    /// The entry.
    ///
    /// # Errors
    /// If the text is not an entry's.
    pub fn to_entry(&self) -> Result<Arc<Entry>, StoreError> {
        let entry = match &self.entry {
            EntrySource::Entry(entry) => return Ok(Arc::clone(entry)),
            EntrySource::Text { text, .. } => text.to_entry(),
            EntrySource::Settled(settled) => serde_json::from_str(&settled.text).ok(),
        };
        entry.map(Arc::new).ok_or_else(|| self.unreadable())
    }

    /// Key and entry as stores return them.
    ///
    /// # Errors
    /// If the text is not an entry's.
    pub fn to_pair(&self) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        Ok((self.key.to_key(), self.to_entry()?))
    }

    /// The error for a text that is not an entry's.
    pub fn unreadable(&self) -> StoreError {
        let file = match &self.entry {
            EntrySource::Text { file, .. } => file,
            EntrySource::Entry(_) | EntrySource::Settled(_) => Path::new("memory"),
        };
        StoreError::snapshot(file, format!("the entry of `{}` is not a config with its provenance", self.key.call()))
    }
}
