//! The functions of a StableHLO module, as the operations of its graph.

use std::collections::HashMap;

use super::follow;
use super::places::{self, Scatter};
use crate::hlo::graph::{Computation, Node, NodeId, NodeKind, Type, Value};
use crate::hlo::mlir_text::attribute;

/// Operations whose results contain the values of their operands, unchanged or plus a constant, as JAX wraps negative
/// indices.
const KEEPS: [&str; 10] = [
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
];
/// Operations whose results contain values of their first operand only; the others are positions.
const TAKES: [&str; 2] = ["stablehlo.gather", "stablehlo.dynamic_slice"];
/// Its condition is no index.
const SELECT: &str = "stablehlo.select";
const LOOP: &str = "stablehlo.while";
const ENTRY: &[u8] = b"main";

/// For each argument of `main`, the size of its range as an index, from zero on; `None` if it is not an index.
pub(in crate::hlo) fn index_ranges(functions: &[Computation<'_>]) -> Vec<Option<u64>> {
    let named: HashMap<&[u8], usize> = functions.iter().enumerate().map(|(at, one)| (&*one.name, at)).collect();
    let Some(&entry) = named.get(ENTRY) else { return Vec::new() };
    let followed = functions.iter().map(|function| Numbered::new(function).followed(&named));
    follow::index_ranges(followed.enumerate().collect(), entry)
}

/// A function whose values have numbers, one for each result of a node. Those of its arguments are the first.
struct Numbered<'f, 'a> {
    function: &'f Computation<'a>,
    /// By node, the number of its first result.
    first: Vec<usize>,
}

impl<'f, 'a> Numbered<'f, 'a> {
    fn new(function: &'f Computation<'a>) -> Self {
        let number = |next: &mut usize, node: &Node<'_>| {
            let first = *next;
            *next += node.results.len().max(1);
            Some(first)
        };
        Self { function, first: function.nodes.iter().scan(0, number).collect() }
    }

    fn number(&self, value: Value) -> usize {
        self.first.get(value.node).copied().unwrap_or_default().saturating_add(value.part.unwrap_or(0))
    }

    fn numbers(&self, values: &[Value]) -> Vec<usize> {
        values.iter().map(|&value| self.number(value)).collect()
    }

    fn followed(&self, named: &HashMap<&[u8], usize>) -> follow::Function<usize> {
        let nodes = &self.function.nodes;
        let arguments = nodes.iter().take_while(|node| is_argument(node) && node.holder.is_none()).count();
        let mut followed = follow::Function { arguments, ..follow::Function::default() };
        let mut passed = HashMap::new();
        for (node, &first) in nodes.iter().zip(&self.first) {
            if let Some(held) = self.held(node, &mut passed) {
                followed.holds.insert(first, held);
            }
            let callee = node.called.first().and_then(|callee| named.get(&**callee));
            if let Some(&callee) = callee.filter(|_| matches!(&*node.opcode, "call" | "func.call")) {
                for result in 0..node.results.len() {
                    followed.results.insert(first + result, (followed.calls.len(), Some(result)));
                }
                followed.calls.push((callee, self.numbers(&node.operands).into_iter().map(Some).collect()));
            }
            let indices = self.indices(node);
            followed.indices.extend(indices.into_iter().map(|(value, count)| (self.number(value), count)));
        }
        followed.returns = self.numbers(&self.function.returns);
        followed
    }

    /// The values that a node's first result contains, if it contains any.
    fn held(&self, node: &Node<'_>, passed: &mut HashMap<NodeId, usize>) -> Option<Vec<usize>> {
        if let Some(holder) = node.holder.filter(|_| is_argument(node)) {
            // an argument of a loop initially holds the value that it is set to; each region has all of them
            let held = self.function.nodes.get(holder).filter(|held| held.opcode == LOOP)?;
            let place = passed.entry(holder).or_insert(0);
            let first = held.operands.get(*place % held.operands.len().max(1));
            *place += 1;
            return first.map(|&first| vec![self.number(first)]);
        }
        let operands: &[Value] = match &*node.opcode {
            SELECT => node.operands.get(1..)?,
            name if KEEPS.contains(&name) => &node.operands,
            name if TAKES.contains(&name) => node.operands.get(..1)?,
            _ => return None,
        };
        Some(self.numbers(operands))
    }

    /// The operands of a node that are indices, each with the size of its range.
    fn indices(&self, node: &Node<'_>) -> Vec<(Value, u64)> {
        let shape = |at: usize| self.shape(node.operands.get(at)).unwrap_or_default();
        let numbers = |key: &str| numbers(&node.attributes, key.as_bytes());
        let with = |first: usize, counts: Vec<Option<u64>>| {
            let indices = node.operands.iter().skip(first).zip(counts);
            indices.filter_map(|(&operand, count)| Some((operand, count?))).collect()
        };
        match &*node.opcode {
            "stablehlo.gather" => {
                with(1, vec![places::of_gather(&shape(0), &numbers("slice_sizes"), &numbers("start_index_map"))])
            }
            "stablehlo.scatter" if node.operands.len() == 3 => {
                let scatter = Scatter {
                    update_window_dims: numbers("update_window_dims"),
                    inserted_window_dims: numbers("inserted_window_dims"),
                    input_batching_dims: numbers("input_batching_dims"),
                    scatter_dims_to_operand_dims: numbers("scatter_dims_to_operand_dims"),
                };
                with(1, vec![places::of_scatter(&shape(0), &shape(2), &scatter)])
            }
            "stablehlo.dynamic_slice" => {
                // the generic form calls them as the operation does
                let sizes = [numbers("sizes"), numbers("slice_sizes")].concat();
                with(1, places::of_slice(&shape(0), &sizes))
            }
            "stablehlo.dynamic_update_slice" => with(2, places::of_slice(&shape(0), &shape(1))),
            _ => Vec::new(),
        }
    }

    fn shape(&self, value: Option<&Value>) -> Option<Vec<u64>> {
        let value = value?;
        match self.function.nodes.get(value.node)?.types(value.part) {
            [Type::Array(array)] => Some(array.dims.clone()),
            _ => None,
        }
    }
}

fn is_argument(node: &Node<'_>) -> bool {
    node.kind == NodeKind::Argument
}

/// The numbers of an attribute: `sizes = [8, 64]` or `slice_sizes = array<i64: 8, 64>`.
fn numbers(attributes: &[u8], key: &[u8]) -> Vec<u64> {
    let list = attribute(attributes, key).unwrap_or_default();
    let list = list.strip_prefix(b"[").or(list.strip_prefix(b"array<i64:")).unwrap_or_default();
    let list = list.split(|byte| matches!(byte, b']' | b'>')).next().unwrap_or_default();
    let number = |one: &[u8]| std::str::from_utf8(one.trim_ascii()).ok()?.parse().ok();
    list.split(|&byte| byte == b',').filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use crate::hlo::mlir_text;

    fn index_ranges(text: &str) -> Vec<Option<u64>> {
        super::index_ranges(&mlir_text::functions(text.as_bytes()))
    }

    /// What JAX 0.10.2 lowers for `table[ids]`, `lax.dynamic_slice(table, (at, 0), (8, 64))` and `jnp.take` of 7 rows,
    /// with a number that is no index.
    const TEXT: &str = include_str!("../../../../../tests/data/hlo/indices.mlir");

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
        let scatter = "func.func public @main(%a: tensor<5x10xf32>, %i: tensor<2x2xi32>, %u: tensor<2x3xf32>) {\n \
                       %0 = \"stablehlo.scatter\"(%a, %i, %u) <{scatter_dimension_numbers = \
                       #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], \
                       scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({\n \
                       ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n stablehlo.return %y : tensor<f32>\n }) : \
                       (tensor<5x10xf32>, tensor<2x2xi32>, tensor<2x3xf32>) -> tensor<5x10xf32>";
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
