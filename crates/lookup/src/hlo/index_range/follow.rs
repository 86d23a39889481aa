//! Follows indices back to the arguments that they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Maximum depth of functions, and maximum number of values followed in total.
const MAX_CALLS: usize = 8;
const MAX_VALUES: usize = 1 << 20;

/// A function: its first values are its arguments.
#[derive(Default)]
pub(super) struct Function<K> {
    pub(super) arguments: usize,
    /// The values whose elements a value contains, unchanged or with a constant added.
    pub(super) holds: BTreeMap<usize, Vec<usize>>,
    /// Each call with its argument values; `None` for unknown ones.
    pub(super) calls: Vec<(K, Vec<Option<usize>>)>,
    /// Values that are results: the call, and the number of the result; `None` for any result.
    pub(super) results: BTreeMap<usize, (usize, Option<usize>)>,
    /// Values that are indices, each with the size of its range.
    pub(super) indices: Vec<(usize, u64)>,
    pub(super) returns: Vec<usize>,
}

/// What a function reveals about its arguments.
#[derive(Debug, Default)]
struct Known {
    /// The range of each as an index.
    indices: Vec<Option<u64>>,
    /// By result, the arguments that it contains.
    kept: Vec<BTreeSet<usize>>,
}

/// What is known about each function, so that each is analysed once.
struct Ranges<K> {
    functions: BTreeMap<K, Function<K>>,
    known: BTreeMap<K, Rc<Known>>,
    /// The remaining number of values to follow.
    left: usize,
}

/// For each argument of a function, the size of its range as an index, from zero on; `None` if it is not an index.
pub(super) fn index_ranges<K: Ord + Copy>(functions: BTreeMap<K, Function<K>>, entry: K) -> Vec<Option<u64>> {
    let known = Ranges { functions, known: BTreeMap::new(), left: MAX_VALUES }.of(entry, MAX_CALLS);
    known.indices.clone()
}

impl<K: Ord + Copy> Ranges<K> {
    fn of(&mut self, name: K, calls: usize) -> Rc<Known> {
        if let Some(known) = self.known.get(&name) {
            return Rc::clone(known);
        }
        // a recursive call adds nothing about the arguments: the function is removed in the meantime
        let Some(function) = self.functions.remove(&name) else { return Rc::default() };
        let mut indices = function.indices.clone();
        for (callee, operands) in function.calls.iter().filter(|_| calls > 0) {
            let known = self.of(*callee, calls - 1);
            indices.extend(
                operands.iter().zip(&known.indices).filter_map(|(operand, count)| Some(((*operand)?, (*count)?))),
            );
        }
        let mut found = Known { indices: vec![None; function.arguments], kept: Vec::new() };
        for (value, count) in indices {
            for argument in self.origins(value, &function, calls) {
                if let Some(place) = found.indices.get_mut(argument) {
                    *place = Some(place.map_or(count, |other: u64| other.min(count)));
                }
            }
        }
        found.kept = function.returns.iter().map(|&value| self.origins(value, &function, calls)).collect();
        let found = Rc::new(found);
        self.known.insert(name, Rc::clone(&found));
        found
    }

    /// The arguments whose values a value contains.
    fn origins(&mut self, value: usize, function: &Function<K>, calls: usize) -> BTreeSet<usize> {
        let (mut seen, mut open, mut found) = (BTreeSet::new(), vec![value], BTreeSet::new());
        while let Some(value) = open.pop().filter(|_| self.left > 0) {
            self.left -= 1;
            if !seen.insert(value) {
                continue;
            }
            if value < function.arguments {
                found.insert(value);
                continue;
            }
            open.extend(function.holds.get(&value).into_iter().flatten());
            let Some((call, result)) = function.results.get(&value).filter(|_| calls > 0) else { continue };
            let Some((callee, operands)) = function.calls.get(*call) else { continue };
            let known = self.of(*callee, calls - 1);
            let kept = match result {
                Some(result) => known.kept.get(*result).map(std::slice::from_ref).unwrap_or_default(),
                None => &known.kept[..],
            };
            open.extend(kept.iter().flatten().filter_map(|&at| operands.get(at).copied().flatten()));
        }
        found
    }
}
