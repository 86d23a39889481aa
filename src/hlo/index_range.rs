//! Which integers a module's arguments may be, where they are indices: the shape of what they point into says it.
//!
//! StableHLO text is read line by line, one operation each. An argument that becomes the index of a gather or of a dynamic slice by
//! way of operations that keep values, or that wrap negative ones, is in the range of the operand's dimension.

use std::collections::{BTreeMap, BTreeSet};

/// How deep functions are looked into, and how many values are followed in all.
const MAX_CALLS: usize = 8;
const MAX_VALUES: usize = 1 << 20;
/// Operations whose results hold the values of their operands, or those plus a constant, as JAX wraps negative indices.
const KEEPS: [&str; 9] = [
    "stablehlo.broadcast_in_dim",
    "stablehlo.reshape",
    "stablehlo.convert",
    "stablehlo.transpose",
    "stablehlo.concatenate",
    "stablehlo.slice",
    "stablehlo.clamp",
    "stablehlo.add",
    "stablehlo.select",
];

/// One operation, or the head of one with regions.
struct Operation<'a> {
    name: &'a str,
    operands: Vec<&'a str>,
    line: &'a str,
}

/// A function: its arguments' names, and its operations.
struct Function<'a> {
    arguments: Vec<&'a str>,
    operations: Vec<(&'a str, Operation<'a>)>,
}

/// Of each argument of `main` how many values it may have as an index, from zero on; `None` of those that are none.
pub(super) fn index_ranges(text: &str) -> Vec<Option<u64>> {
    Ranges { functions: functions(text), known: BTreeMap::new(), left: MAX_VALUES }.of("main", MAX_CALLS)
}

fn functions(text: &str) -> BTreeMap<&str, Function<'_>> {
    let mut found: BTreeMap<&str, Function<'_>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim_start) {
        if let Some((_, head)) = line.split_once("func.func ").filter(|(before, _)| before.is_empty()) {
            current = head.split_once('@').and_then(|(_, rest)| rest.split_once('('));
            if let Some((name, rest)) = current {
                let arguments = values(rest.split(" -> ").next().unwrap_or_default());
                found.insert(name, Function { arguments, operations: Vec::new() });
            }
            continue;
        }
        let Some(function) = current.and_then(|(name, _)| found.get_mut(name)) else { continue };
        let Some((result, rest)) = line.split_once(" = ").filter(|(result, _)| result.starts_with('%')) else {
            continue;
        };
        let rest = rest.trim_start_matches('"');
        let end = rest.find(['"', ' ', '(']).unwrap_or(rest.len());
        let (name, arguments) = rest.split_at(end);
        let operands = values(arguments.split(" : ").next().unwrap_or_default());
        function.operations.push((result, Operation { name, operands, line }));
    }
    found
}

/// The names of values in a piece of text, in their order.
fn values(text: &str) -> Vec<&str> {
    let ends = |character: char| !(character.is_ascii_alphanumeric() || character == '_');
    let named = text.match_indices('%').map(|(at, _)| {
        let name = text.get(at..).unwrap_or_default();
        let end = name.get(1..).and_then(|rest| rest.find(ends)).map_or(name.len(), |end| end + 1);
        name.get(..end).unwrap_or_default()
    });
    named.collect()
}

/// What is known of each function, so that each is looked into once.
struct Ranges<'a> {
    functions: BTreeMap<&'a str, Function<'a>>,
    known: BTreeMap<&'a str, Vec<Option<u64>>>,
    /// Values that may still be looked at.
    left: usize,
}

impl<'a> Ranges<'a> {
    fn of(&mut self, name: &str, calls: usize) -> Vec<Option<u64>> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let Some((name, function)) = self.functions.remove_entry(name) else { return Vec::new() };
        // one that calls itself says nothing more of its arguments: it is taken out meanwhile
        let mut found = vec![None; function.arguments.len()];
        let arguments: BTreeMap<&str, usize> =
            function.arguments.iter().enumerate().map(|(at, name)| (*name, at)).collect();
        let defined: BTreeMap<&str, &Operation<'_>> =
            function.operations.iter().map(|(name, one)| (*name, one)).collect();
        for (_, operation) in &function.operations {
            for (value, count) in self.uses(operation, calls) {
                let (mut seen, mut open) = (BTreeSet::new(), vec![value]);
                while let Some(value) = open.pop().filter(|_| self.left > 0) {
                    self.left -= 1;
                    if !seen.insert(value) {
                        continue;
                    }
                    if let Some(place) = arguments.get(value).and_then(|at| found.get_mut(*at)) {
                        *place = Some(place.map_or(count, |other: u64| other.min(count)));
                    } else if let Some(of) = defined.get(value).filter(|of| KEEPS.contains(&of.name)) {
                        // of a choice the condition is no index
                        open.extend(of.operands.iter().skip(usize::from(of.name == "stablehlo.select")));
                    }
                }
            }
        }
        self.known.insert(name, found.clone());
        found
    }

    /// The operands of an operation that are indices, with how many values each may have.
    fn uses(&mut self, operation: &Operation<'a>, calls: usize) -> Vec<(&'a str, u64)> {
        let Operation { name, operands, line } = operation;
        let types = || line.rsplit_once(" : (").map(|(_, types)| types).unwrap_or_default();
        let shape = |at: usize| types().split("tensor<").nth(at + 1).and_then(dimensions).unwrap_or_default();
        // as many places as a slice of so many elements fits in
        let places = |whole: u64, part: u64| whole.checked_sub(part).map(|left| left + 1);
        let with = |first: usize, counts: Vec<Option<u64>>| {
            let indices = operands.iter().skip(first).zip(counts);
            indices.filter_map(|(operand, count)| Some((*operand, count?))).collect()
        };
        match *name {
            "stablehlo.gather" => {
                let (whole, sizes) = (shape(0), numbers(line, "slice_sizes = array<i64: ", '>'));
                let of = |dimension: &u64| {
                    let at = usize::try_from(*dimension).ok()?;
                    places(*whole.get(at)?, *sizes.get(at)?)
                };
                let mapped = numbers(line, "start_index_map = [", ']');
                with(1, vec![mapped.iter().map(of).min().flatten()])
            }
            "stablehlo.dynamic_slice" => {
                let sizes = numbers(line, "sizes = [", ']');
                with(1, shape(0).iter().zip(&sizes).map(|(whole, part)| places(*whole, *part)).collect())
            }
            "stablehlo.dynamic_update_slice" => {
                with(2, shape(0).iter().zip(&shape(1)).map(|(whole, part)| places(*whole, *part)).collect())
            }
            "call" | "func.call" if calls > 0 => {
                let callee = line.split_once('@').map(|(_, rest)| rest.split('(').next().unwrap_or_default());
                with(0, self.of(callee.unwrap_or_default(), calls - 1))
            }
            _ => Vec::new(),
        }
    }
}

/// `1000x64xf32>…` to 1000 and 64.
fn dimensions(text: &str) -> Option<Vec<u64>> {
    let inside = text.split('>').next()?;
    let parts: Vec<&str> = inside.split('x').collect();
    let (_, dimensions) = parts.split_last()?;
    dimensions.iter().map(|dimension| dimension.parse().ok()).collect()
}

/// The numbers of a list that stands behind some words.
fn numbers(line: &str, words: &str, end: char) -> Vec<u64> {
    let list = line.split_once(words).and_then(|(_, rest)| rest.split(end).next());
    let numbers: Option<Vec<u64>> = list.map(|list| list.split(", ").filter_map(|one| one.parse().ok()).collect());
    numbers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As JAX 0.10.2 lowers `table[ids]`, `lax.dynamic_slice(table, (at, 0), (8, 64))` and `jnp.take` of 7 rows, and a number that is none.
    const TEXT: &str = r#"module @jit_f {
  func.func public @main(%arg0: tensor<1000x64xf32> loc("a"), %arg1: tensor<256xi32>, %arg2: tensor<i32>, %arg3: tensor<4xi32>, %arg4: tensor<i32>) -> (tensor<256x64xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<256xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<256xi32>, tensor<256xi32>) -> tensor<256xi1>
    %c_0 = stablehlo.constant dense<1000> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<256xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<256xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<256xi1>, tensor<256xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<256xi32>) -> tensor<256x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<1000x64xf32>, tensor<256x1xi32>) -> tensor<256x64xf32>
    %7 = stablehlo.dynamic_slice %arg0, %arg2, %c, sizes = [8, 64] : (tensor<1000x64xf32>, tensor<i32>, tensor<i32>) -> tensor<8x64xf32>
    %8 = call @_take(%7, %arg3) : (tensor<8x64xf32>, tensor<4xi32>) -> tensor<4x64xf32>
    %9 = stablehlo.convert %arg4 : (tensor<i32>) -> tensor<f32>
    return %6 : tensor<256x64xf32>
  }
  func.func private @_take(%arg0: tensor<8x64xf32>, %arg1: tensor<4xi32>) -> tensor<4x64xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<4xi32>) -> tensor<4x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 64>}> : (tensor<8x64xf32>, tensor<4x1xi32>) -> tensor<4x64xf32>
    return %1 : tensor<4x64xf32>
  }
}"#;

    #[test]
    fn an_index_is_in_the_range_of_what_it_points_into() {
        // a slice of 8 rows of 1000 begins at 993 places, one of 2 of 8 at 7
        assert_eq!(index_ranges(TEXT), [None, Some(1000), Some(993), Some(7), None]);
        for end in 0..TEXT.len() {
            let _ = index_ranges(&TEXT[..end]);
        }
        assert_eq!(
            index_ranges("func.func public @main(%x: tensor<f32>) {\n %0 = call @main(%x) : tensor<f32>"),
            [None]
        );
        let update = "func.func public @main(%a: tensor<9x4xf32>, %b: tensor<1x4xf32>, %i: tensor<i32>) {\n %0 = \
                      stablehlo.dynamic_update_slice %a, %b, %i, %i : (tensor<9x4xf32>, tensor<1x4xf32>, tensor<i32>, \
                      tensor<i32>) -> tensor<9x4xf32>";
        // as a column it has one place
        assert_eq!(index_ranges(update), [None, None, Some(1)]);
    }
}
