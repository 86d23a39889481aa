//! Names of operations and modules as small numbers, the same in every plane.

use std::collections::HashMap;

/// A name's number; the names are in [`super::DeviceTime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub(crate) u32);

/// Numbers names in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    numbers: HashMap<&'a [u8], u32>,
    list: Vec<&'a [u8]>,
}

impl<'a> Names<'a> {
    pub(super) fn number(&mut self, name: &'a [u8]) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(name).or_insert_with(|| {
            self.list.push(name);
            next
        })
    }

    pub(super) fn list(&self) -> &[&'a [u8]] {
        &self.list
    }
}
