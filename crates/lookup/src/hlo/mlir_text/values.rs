//! The values that are visible at a place, by their names.

use std::collections::HashMap;

use crate::hlo::graph::{NodeId, Value};

/// What a name stands for: results of one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Results {
    pub(super) node: NodeId,
    /// The number of the first, and how many there are.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Whether the node has other results besides.
    pub(super) is_part: bool,
}

/// Names of values, and what each stood for before, since sibling regions use the same names.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    known: HashMap<&'a [u8], Results>,
    hidden: Vec<(&'a [u8], Option<Results>)>,
}

impl<'a> Values<'a> {
    /// A place to which [`Values::forget`] returns.
    pub(super) fn mark(&self) -> usize {
        self.hidden.len()
    }

    /// Takes back all definitions since a place.
    pub(super) fn forget(&mut self, mark: usize) {
        for (name, before) in self.hidden.drain(mark.min(self.hidden.len())..).rev() {
            match before {
                Some(results) => self.known.insert(name, results),
                None => self.known.remove(name),
            };
        }
    }

    pub(super) fn define(&mut self, name: &'a [u8], results: Results) {
        let before = self.known.insert(name, results);
        self.hidden.push((name, before));
    }

    pub(super) fn is_known(&self, name: &[u8]) -> bool {
        self.known.contains_key(name)
    }

    /// `%name`, or `%name#1` for one of several results.
    pub(super) fn value(&self, name: &[u8], number: Option<usize>) -> Option<Value> {
        let results = self.known.get(name)?;
        if number.unwrap_or(0) >= results.count {
            return None;
        }
        let is_whole = !results.is_part && (results.count == 1 || number.is_none());
        let part = (!is_whole).then(|| results.first + number.unwrap_or(0));
        Some(Value { node: results.node, part })
    }
}
