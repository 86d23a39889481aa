//! The functions of StableHLO text, read line by line, one operation each.

use std::collections::BTreeMap;

use super::follow;
use super::places::{self, Scatter};

/// Operations whose results contain the values of their operands, unchanged or plus a constant, as JAX wraps negative
/// indices.
const KEEPS: [&str; 11] = [
    "stablehlo.broadcast_in_dim",
    "stablehlo.reshape",
    "stablehlo.convert",
    "stablehlo.transpose",
    "stablehlo.concatenate",
    "stablehlo.slice",
    "stablehlo.clamp",
    "stablehlo.add",
    "stablehlo.minimum",
    "stablehlo.maximum",
    "stablehlo.select",
];
/// Operations whose results contain values of their first operand only; the others are positions.
const TAKES: [&str; 2] = ["stablehlo.gather", "stablehlo.dynamic_slice"];
/// An argument of a loop initially holds the value it is set to.
const SET_TO: &str = "";

/// One operation, or the head of an operation with regions.
struct Operation<'a> {
    name: &'a str,
    /// Values by number; `None` for unknown ones.
    operands: Vec<Option<usize>>,
    line: &'a str,
    /// The line with its types: the last line of an operation with regions.
    types: &'a str,
}

/// A function: its first values are its arguments.
#[derive(Default)]
struct Function<'a> {
    arguments: usize,
    values: usize,
    /// Each with the number of its result.
    operations: Vec<(usize, Operation<'a>)>,
    returns: Vec<usize>,
}

/// For each argument of `main`, the size of its range as an index, from zero on; `None` if it is not an index.
pub(in crate::hlo) fn index_ranges(text: &str) -> Vec<Option<u64>> {
    let functions = functions(text);
    follow::index_ranges(functions.iter().map(|(name, function)| (*name, function.followed())).collect(), "main")
}

impl<'a> Function<'a> {
    fn followed(&self) -> follow::Function<&'a str> {
        let mut followed = follow::Function { arguments: self.arguments, ..follow::Function::default() };
        for (result, operation) in &self.operations {
            let Operation { name, operands, line, .. } = operation;
            let mut hold = |operands: &[Option<usize>]| {
                followed.holds.insert(*result, operands.iter().copied().flatten().collect());
            };
            match *name {
                // the condition of a select is not an index
                "stablehlo.select" => hold(operands.get(1..).unwrap_or_default()),
                name if name == SET_TO || KEEPS.contains(&name) => hold(operands),
                name if TAKES.contains(&name) => hold(operands.get(..1).unwrap_or_default()),
                "call" | "func.call" => {
                    followed.results.insert(*result, (followed.calls.len(), None));
                    followed.calls.push((callee(line), operands.clone()));
                }
                _ => {}
            }
            followed.indices.extend(operation.indices());
        }
        followed.returns.clone_from(&self.returns);
        followed
    }
}

/// Names and numbers of the values visible at a line. Sibling regions use the same names.
#[derive(Default)]
struct Scopes<'a> {
    open: Vec<BTreeMap<&'a str, usize>>,
    /// Arguments of the enclosing loops, for both of their regions.
    loops: Vec<BTreeMap<&'a str, usize>>,
    /// Operations whose regions are open, by their place in the function.
    heads: Vec<usize>,
}

impl<'a> Scopes<'a> {
    fn find(&self, name: &str) -> Option<usize> {
        self.open.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    fn define(&mut self, name: &'a str, function: &mut Function<'a>) -> usize {
        let number = function.values;
        function.values += 1;
        if let Some(scope) = self.open.last_mut() {
            scope.insert(name, number);
        }
        number
    }

    fn all(&self, text: &'a str) -> Vec<Option<usize>> {
        values(text).into_iter().map(|name| self.find(name)).collect()
    }
}

fn functions(text: &str) -> BTreeMap<&str, Function<'_>> {
    let mut found: BTreeMap<&str, Function<'_>> = BTreeMap::new();
    let mut current = None;
    let mut scopes = Scopes::default();
    for line in text.lines().map(str::trim_start) {
        if let Some((_, head)) = line.split_once("func.func ").filter(|(before, _)| before.is_empty()) {
            current = head.split_once('@').and_then(|(_, rest)| rest.split_once('('));
            if let Some((name, rest)) = current {
                scopes = Scopes { open: vec![BTreeMap::new()], ..Scopes::default() };
                let function = found.entry(name).or_default();
                *function = Function::default();
                for argument in values(rest.split(" -> ").next().unwrap_or_default()) {
                    scopes.define(argument, function);
                }
                function.arguments = function.values;
            }
            continue;
        }
        let Some(function) = current.and_then(|(name, _)| found.get_mut(name)) else { continue };
        read_line(line, function, &mut scopes);
    }
    found
}

fn read_line<'a>(line: &'a str, function: &mut Function<'a>, scopes: &mut Scopes<'a>) {
    if line.starts_with('}') {
        scopes.open.pop();
        let head = line.starts_with("})").then(|| scopes.heads.pop()).flatten();
        if let Some((_, operation)) = head.and_then(|head| function.operations.get_mut(head)) {
            operation.types = line;
        }
    } else if let Some((result, rest)) = line.split_once(" = ").filter(|(result, _)| result.starts_with('%')) {
        let rest = rest.trim_start_matches('"');
        let end = rest.find(['"', ' ', '(']).unwrap_or(rest.len());
        let (name, given) = rest.split_at(end);
        let given = given.split(" : ").next().unwrap_or_default();
        if name == "stablehlo.while" {
            let mut arguments = BTreeMap::new();
            for pair in values(given).chunks_exact(2) {
                let [argument, first] = pair else { continue };
                let operands = vec![scopes.find(first)];
                let number = function.values;
                function.values += 1;
                function.operations.push((number, Operation { name: SET_TO, operands, line, types: line }));
                arguments.insert(*argument, number);
            }
            scopes.loops.push(arguments);
        }
        let operands = scopes.all(given);
        let result = scopes.define(values(result).first().copied().unwrap_or_default(), function);
        if line.ends_with("({") {
            scopes.heads.push(function.operations.len());
        }
        function.operations.push((result, Operation { name, operands, line, types: line }));
    } else if line.starts_with("return ") || line.starts_with("func.return ") {
        function.returns = scopes.all(line.split(" : ").next().unwrap_or_default()).into_iter().flatten().collect();
    } else if line.starts_with("^bb") {
        for argument in values(line) {
            scopes.define(argument, function);
        }
    }
    if line.ends_with('{') {
        let scope = match line {
            "cond {" => scopes.loops.last().cloned(),
            "} do {" => scopes.loops.pop(),
            _ => None,
        };
        scopes.open.push(scope.unwrap_or_default());
    }
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

impl Operation<'_> {
    /// The operands that are indices, each with the size of its range.
    fn indices(&self) -> Vec<(usize, u64)> {
        let Self { name, operands, line, types } = self;
        let types = || types.rsplit_once(" : (").map(|(_, types)| types).unwrap_or_default();
        let shape = |at: usize| types().split("tensor<").nth(at + 1).and_then(dimensions).unwrap_or_default();
        let with = |first: usize, counts: Vec<Option<u64>>| {
            let indices = operands.iter().skip(first).zip(counts);
            indices.filter_map(|(operand, count)| Some(((*operand)?, count?))).collect()
        };
        match *name {
            "stablehlo.gather" => {
                let sizes = numbers(line, "slice_sizes = array<i64: ", '>');
                with(1, vec![places::of_gather(&shape(0), &sizes, &numbers(line, "start_index_map = [", ']'))])
            }
            "stablehlo.scatter" if operands.len() == 3 => {
                let scatter = Scatter {
                    update_window_dims: numbers(line, "update_window_dims = [", ']'),
                    inserted_window_dims: numbers(line, "inserted_window_dims = [", ']'),
                    input_batching_dims: numbers(line, "input_batching_dims = [", ']'),
                    scatter_dims_to_operand_dims: numbers(line, "scatter_dims_to_operand_dims = [", ']'),
                };
                with(1, vec![places::of_scatter(&shape(0), &shape(2), &scatter)])
            }
            "stablehlo.dynamic_slice" => with(1, places::of_slice(&shape(0), &numbers(line, "sizes = [", ']'))),
            "stablehlo.dynamic_update_slice" => with(2, places::of_slice(&shape(0), &shape(1))),
            _ => Vec::new(),
        }
    }
}

/// The function that a line calls.
fn callee(line: &str) -> &str {
    line.split_once('@').map(|(_, rest)| rest.split('(').next().unwrap_or_default()).unwrap_or_default()
}

/// `1000x64xf32>…` to 1000 and 64.
fn dimensions(text: &str) -> Option<Vec<u64>> {
    let inside = text.split('>').next()?;
    let parts: Vec<&str> = inside.split('x').collect();
    let (_, dimensions) = parts.split_last()?;
    dimensions.iter().map(|dimension| dimension.parse().ok()).collect()
}

/// The numbers of a list that follows some words.
fn numbers(line: &str, words: &str, end: char) -> Vec<u64> {
    let list = line.split_once(words).and_then(|(_, rest)| rest.split(end).next());
    let numbers: Option<Vec<u64>> = list.map(|list| list.split(", ").filter_map(|one| one.parse().ok()).collect());
    numbers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What JAX 0.10.2 lowers for `table[ids]`, `lax.dynamic_slice(table, (at, 0), (8, 64))` and `jnp.take` of 7 rows,
    /// with a number that is no index.
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

    /// `indices_in_loops` (tests/data/hlo/README.md): rows are added at `ids`, slices of 8 rows begin at a number that
    /// a loop counts on from, and another loop reads rows by tokens. The table has 1000 rows.
    #[test]
    fn indices_of_scatters_and_in_loops_are_in_range_too() {
        let text = include_str!("../../../../../tests/data/hlo/indices_in_loops.mlir");
        assert_eq!(index_ranges(text), [None, Some(1000), None, Some(993), Some(1000)]);
        for end in (0..text.len()).step_by(13) {
            let _ = index_ranges(&text[..end]);
            let _ = index_ranges(&text.replace('{', "").replace("cond", "} do {")[..end / 2]);
        }
        // a window of 3 of 10 columns has 8 places, and a scattered row one of 5
        let scatter = "func.func public @main(%a: tensor<5x10xf32>, %i: tensor<2x2xi32>, %u: tensor<2x3xf32>) {\n %0 = \
                       \"stablehlo.scatter\"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], \
                       inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({\n \
                       ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n stablehlo.return %y : tensor<f32>\n }) : (tensor<5x10xf32>, \
                       tensor<2x2xi32>, tensor<2x3xf32>) -> tensor<5x10xf32>";
        assert_eq!(index_ranges(scatter), [None, Some(5), None]);
    }

    #[test]
    fn an_index_is_in_the_range_of_what_it_points_into() {
        // a slice of 8 rows of 1000 has 993 places, one of 2 of 8 has 7
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
