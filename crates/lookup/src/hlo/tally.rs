//! Counts stamps by their spelling, so that a label that occurs a million times is parsed once.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::escape::Escapes;
use super::stamp::{self, Stamp};

/// Distinct spellings kept; later ones are counted together as [`Tally::overflow`].
pub(crate) const MAX_DISTINCT: usize = 1 << 18;

/// Bytes of all spellings kept, so that a file of distinct long stamps cannot fill the memory.
const MAX_SPELLING_BYTES: usize = 1 << 26;

/// One spelling of a label.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) stamp: Stamp,
    pub(crate) occurrences: u64,
    /// Offset of the first, from the start of the file.
    pub(crate) first: u64,
    pub(crate) transformations: Transformations,
}

/// The transformations around a label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Transformations {
    /// `transpose(…)`: a backward pass.
    pub(crate) backward: bool,
    /// `vmap(…)`.
    pub(crate) mapped: bool,
}

impl Transformations {
    const ALL: Self = Self { backward: true, mapped: true };

    /// Parses a name before a stamp: JAX wraps the scopes of a transformed computation in `transpose(…)` and
    /// `vmap(…)`.
    ///
    /// `before` is what precedes the stamp; only its own name counts, from the opening quote or the last `;`.
    pub(crate) fn of(before: &[u8], escapes: Escapes) -> Self {
        let start = name_start(before, escapes).unwrap_or(0);
        let name = before.get(start..).unwrap_or_default();
        let part = memchr::memrchr(b';', name).map_or(name, |at| name.get(at..).unwrap_or_default());
        Self { backward: TRANSPOSE.find(part).is_some(), mapped: VMAP.find(part).is_some() }
    }

    /// Adds the surroundings of another occurrence, computed only if they can still change the result.
    fn add(&mut self, other: impl FnOnce() -> Self) {
        if *self != Self::ALL {
            let other = other();
            self.backward |= other.backward;
            self.mapped |= other.mapped;
        }
    }
}

/// All stamps of a section of a file.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    index: HashMap<Vec<u8>, usize>,
    pub(crate) entries: Vec<Entry>,
    /// Prefixes after which not even the operation's name could be read.
    pub(crate) broken: u64,
    /// Stamps beyond [`MAX_DISTINCT`] spellings or [`MAX_SPELLING_BYTES`] of them.
    pub(crate) overflow: u64,
    /// Recently found entries: most stamps repeat one of a few.
    latest: [usize; LATEST],
    spellings: Vec<Vec<u8>>,
    spelling_bytes: usize,
    /// Recent JSON spellings, which are slow to measure but quick to compare.
    recent: Vec<Vec<u8>>,
}

const RECENT: usize = 8;
const LATEST: usize = 4;

impl Tally {
    /// The entry of a spelling seen before.
    pub(crate) fn known(&mut self, spelling: &[u8]) -> Option<&mut Entry> {
        let repeated =
            self.latest.into_iter().find(|&at| self.spellings.get(at).is_some_and(|known| known == spelling));
        let index = match repeated {
            Some(index) => index,
            None => {
                let index = *self.index.get(spelling)?;
                self.latest.rotate_right(1);
                self.latest[0] = index;
                index
            }
        };
        self.entries.get_mut(index)
    }

    /// Counts one occurrence. `transformations` is called only if it can still change the result.
    pub(crate) fn count(
        &mut self,
        spelling: &[u8],
        offset: u64,
        transformations: impl FnOnce() -> Transformations,
        stamp: impl FnOnce() -> Option<Stamp>,
    ) {
        if let Some(entry) = self.known(spelling) {
            entry.occurrences += 1;
            entry.first = entry.first.min(offset);
            entry.transformations.add(transformations);
            return;
        }
        let Some(stamp) = stamp() else {
            self.broken += 1;
            return;
        };
        let transformations = transformations();
        self.insert(spelling.to_vec(), Entry { stamp, occurrences: 1, first: offset, transformations });
    }

    /// Length of the JSON stamp at the start of `bytes`, if it repeats a recent one.
    pub(crate) fn repeated_length(&self, bytes: &[u8]) -> Option<usize> {
        let ends = |length: usize| match bytes.get(length) {
            // a stamp truncated inside its operation's name could continue differently here
            Some(&next) => bytes.get(length - 1) == Some(&b'}') || !stamp::is_name_byte(next),
            None => false,
        };
        self.recent.iter().map(|spelling| (spelling, spelling.len())).find_map(|(spelling, length)| {
            (length > 0 && bytes.starts_with(spelling) && ends(length)).then_some(length)
        })
    }

    /// Remembers a JSON spelling for [`Tally::repeated_length`].
    pub(crate) fn remember(&mut self, spelling: &[u8]) {
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(spelling.to_vec());
    }

    fn insert(&mut self, spelling: Vec<u8>, entry: Entry) {
        if self.entries.len() >= MAX_DISTINCT || self.spelling_bytes + spelling.len() > MAX_SPELLING_BYTES {
            self.overflow += entry.occurrences;
            return;
        }
        self.spelling_bytes += spelling.len();
        self.index.insert(spelling.clone(), self.entries.len());
        self.spellings.push(spelling);
        self.entries.push(entry);
    }

    /// Adds the counts of another section of the same file.
    pub(crate) fn merge(&mut self, other: Self) {
        self.broken += other.broken;
        self.overflow += other.overflow;
        let mut entries: Vec<_> = other.entries.into_iter().map(Some).collect();
        for (spelling, index) in other.index {
            let Some(entry) = entries.get_mut(index).and_then(Option::take) else { continue };
            match self.known(&spelling) {
                Some(known) => {
                    known.occurrences += entry.occurrences;
                    known.first = known.first.min(entry.first);
                    known.transformations.add(|| entry.transformations);
                }
                None => self.insert(spelling, entry),
            }
        }
    }

    /// Itself without the labels that another has as well.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        let is_of_other = |stamp: &Stamp| {
            let mut known = other.entries.iter().map(|entry| &entry.stamp);
            known.any(|known| known.label == stamp.label && known.family == stamp.family)
        };
        self.index.retain(|_, at| self.entries.get(*at).is_some_and(|entry| !is_of_other(&entry.stamp)));
        self
    }

    /// Counts every stamp of one complete name that begins at `offset`.
    pub(crate) fn add_name(&mut self, name: &[u8], escapes: Escapes, offset: u64) {
        self.add_within(name, Transformations::default(), escapes, offset);
    }

    /// The same for a name within a scope of these transformations.
    pub(crate) fn add_within(&mut self, name: &[u8], around: Transformations, escapes: Escapes, offset: u64) {
        for (at, parsed) in stamps_of(name, escapes) {
            let spelling = name.get(at..at + parsed.length).unwrap_or_default();
            let transformations = || {
                let mut all = around;
                all.add(|| Transformations::of(name.get(..at).unwrap_or_default(), escapes));
                all
            };
            self.count(spelling, offset + at as u64, transformations, || parsed.stamp);
        }
    }
}

/// The stamps of one complete name, with where each starts.
pub(crate) fn stamps_of(name: &[u8], escapes: Escapes) -> Vec<(usize, stamp::Parsed)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(rest) = name.get(from..) {
        let hit =
            [stamp::EJKERNEL, stamp::TOKAMAX].iter().filter_map(|prefix| memchr::memmem::find(rest, prefix)).min();
        let Some(hit) = hit else { break };
        let at = from + hit;
        match stamp::parse(name.get(at..).unwrap_or_default(), escapes) {
            Some(parsed) => {
                from = at + parsed.length.max(1);
                found.push((at, parsed));
            }
            None => from = at + 1,
        }
    }
    found
}

static TRANSPOSE: LazyLock<memchr::memmem::Finder<'static>> =
    LazyLock::new(|| memchr::memmem::Finder::new(b"transpose("));

static VMAP: LazyLock<memchr::memmem::Finder<'static>> = LazyLock::new(|| memchr::memmem::Finder::new(b"vmap("));

/// The start of the name that ends `before`: after its opening quote, or after a control byte.
pub(crate) fn name_start(before: &[u8], escapes: Escapes) -> Option<usize> {
    if escapes == Escapes::Raw {
        return before.iter().rposition(|&byte| byte < 0x20).map(|at| at + 1);
    }
    let mut end = before.len();
    loop {
        let quote = memchr::memrchr(b'"', before.get(..end)?)?;
        if quote == 0 || before.get(quote - 1) != Some(&b'\\') {
            return Some(quote + 1);
        }
        end = quote;
    }
}
