//! Small numbers by metadata id: a vector where ids are dense, as every profiler writes them, a map where they are not.

use std::collections::HashMap;

/// Looked up once or more for each event.
#[derive(Debug, Default)]
pub(crate) struct IdTable {
    dense: Vec<u32>,
    sparse: HashMap<i64, u32>,
}

const ABSENT: u32 = u32::MAX;

impl IdTable {
    /// A table of these pairs; of two with one id the last counts. `u32::MAX` is no value.
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
}
