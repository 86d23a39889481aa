//! Small numbers by metadata id: a vector if ids are dense, as every profiler writes them, otherwise a map.

use std::collections::HashMap;

/// Looked up once or more for each event.
#[derive(Debug, Default)]
pub(crate) struct IdTable {
    dense: Vec<u32>,
    sparse: HashMap<i64, u32>,
}

const ABSENT: u32 = u32::MAX;

impl IdTable {
    /// A table of these pairs; if two have one id the last counts. `u32::MAX` is not a value.
    pub(crate) fn new(pairs: impl Iterator<Item = (i64, u32)> + Clone) -> Self {
        // a hostile id must not make the vector large
        let limit = 4 * pairs.clone().count() + 1024;
        let mut table = Self::default();
        for (id, value) in pairs {
            match usize::try_from(id) {
                Ok(place) if place < limit => {
                    if table.dense.len() <= place {
                        table.dense.resize(place + 1, ABSENT);
                    }
                    if let Some(slot) = table.dense.get_mut(place) {
                        *slot = value;
                    }
                }
                _ => {
                    table.sparse.insert(id, value);
                }
            }
        }
        table
    }

    #[inline]
    pub(crate) fn get(&self, id: i64) -> Option<u32> {
        match self.dense.get(id as usize) {
            Some(&value) if value != ABSENT => Some(value),
            _ if self.sparse.is_empty() => None,
            _ => self.sparse.get(&id).copied(),
        }
    }
}

/// A set of ids of event metadata; those that are not small are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MetadataIds(Vec<u64>);

impl MetadataIds {
    pub(super) fn add(&mut self, id: Option<u16>) {
        let Some(id) = id.map(usize::from) else { return };
        if self.0.len() <= id / 64 {
            self.0.resize(id / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(id / 64) {
            *word |= 1 << (id % 64);
        }
    }

    #[inline]
    pub(super) fn contains(&self, id: Option<u16>) -> bool {
        let Some(id) = id.map(usize::from) else { return true };
        self.0.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_sparse_and_absent_ids() {
        let table = IdTable::new([(1, 10), (i64::MAX, 20), (-3, 30), (1, 11)].into_iter());
        assert_eq!([1, i64::MAX, -3].map(|id| table.get(id)), [Some(11), Some(20), Some(30)]);
        assert_eq!([0, 2, i64::MIN].map(|id| table.get(id)), [None; 3]);
        assert!(table.dense.len() <= 2);
    }
    #[test]
    fn a_set_holds_what_was_added_and_what_is_not_small() {
        let (mut ids, mut others) = (MetadataIds::default(), MetadataIds::default());
        ids.add(Some(3));
        ids.add(None);
        others.add(Some(16383));
        ids.join(&others);
        assert_eq!([None, Some(3), Some(16383)].map(|id| ids.contains(id)), [true; 3]);
        assert_eq!([Some(0), Some(67), Some(16382)].map(|id| ids.contains(id)), [false; 3]);
    }
}
