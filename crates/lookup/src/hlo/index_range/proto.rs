//! The functions of an `HloModuleProto`: its computations. Each array of a tuple is a value.

use std::collections::{BTreeMap, HashMap};

use super::follow::{self, Function};
use super::places;
use crate::hlo::module::{HloComputation, HloInstruction, HloModule};
use crate::hlo::schema::xla_data::ShapeProto;

/// Maximum number of values of a module. An operand counts once for each value that contains it.
const MAX_VALUES: usize = 1 << 22;
/// Operations whose results contain the values of their operands, unchanged or plus a constant, as JAX wraps negative
/// indices.
const KEEPS: [&str; 13] = [
    "broadcast",
    "reshape",
    "convert",
    "transpose",
    "concatenate",
    "slice",
    "clamp",
    "add",
    "minimum",
    "maximum",
    "copy",
    "bitcast",
    "opt-barrier",
];

/// For each argument of the entry, the size of its range as an index, from zero on; `None` if it is not an index. Empty
/// if the module is too large or cannot be read.
pub(in crate::hlo) fn index_ranges(module: &[u8]) -> Vec<Option<u64>> {
    let functions = || {
        let module = HloModule::read(module, "").ok()?;
        let mut left = MAX_VALUES;
        let function = |one: &HloComputation| {
            let instructions = module.instructions.get(one.instructions.clone())?;
            Some((one.id, Reader::new(instructions, &mut left)?.function(one.root, &mut left)?))
        };
        let functions: Option<BTreeMap<i64, Function<i64>>> = module.computations.iter().map(function).collect();
        Some((functions?, module.entry))
    };
    functions().map(|(functions, entry)| follow::index_ranges(functions, entry)).unwrap_or_default()
}

/// The values of an instruction: one for each array of its result.
struct Values<'m> {
    first: usize,
    count: usize,
    shape: &'m ShapeProto,
    /// For a tuple, where the values of each element begin.
    starts: Vec<usize>,
}

struct Reader<'m> {
    instructions: &'m [HloInstruction],
    arguments: usize,
    by_id: HashMap<i64, Values<'m>>,
}

impl<'m> Reader<'m> {
    /// Numbers the values, those of the parameters first; at most `left` more values may be numbered.
    fn new(instructions: &'m [HloInstruction], left: &mut usize) -> Option<Self> {
        let mut order: Vec<&HloInstruction> = instructions.iter().collect();
        order.sort_by_key(|one| match one.opcode() {
            "parameter" => one.message.parameter_number,
            _ => u64::MAX,
        });
        let mut reader = Self { instructions, arguments: 0, by_id: HashMap::new() };
        let mut first = 0;
        for instruction in order {
            let shape = instruction.shape();
            let count = shape.leaves().len();
            *left = left.checked_sub(count)?;
            let mut next = first;
            let start = |element: &ShapeProto| {
                let start = next;
                next += element.leaves().len();
                start
            };
            let starts = shape.tuple_shapes.iter().map(start).collect();
            reader.by_id.insert(instruction.id(), Values { first, count, shape, starts });
            first += count;
            if instruction.opcode() == "parameter" {
                reader.arguments = first;
            }
        }
        Some(reader)
    }

    /// The computation as a function; at most `left` more operands may be recorded.
    fn function(&self, root: i64, left: &mut usize) -> Option<Function<i64>> {
        let mut function = Function { arguments: self.arguments, ..Function::default() };
        for instruction in self.instructions {
            let Some(own) = self.by_id.get(&instruction.id()) else { continue };
            let operands: Vec<&Values<'_>> =
                instruction.operands().iter().filter_map(|id| self.by_id.get(id)).collect();
            if operands.len() != instruction.operands().len() {
                continue;
            }
            let mut hold = |operands: &[&Values<'_>]| {
                *left = left.checked_sub(own.count.saturating_mul(operands.len()))?;
                for value in 0..own.count {
                    let of = operands.iter().filter(|operand| value < operand.count);
                    let of = of.map(|operand| operand.first + value);
                    function.holds.insert(own.first + value, of.collect());
                }
                Some(())
            };
            match instruction.opcode() {
                "tuple" => {
                    let all = operands.iter().flat_map(|operand| operand.first..operand.first + operand.count);
                    function.holds.extend((own.first..own.first + own.count).zip(all.map(|value| vec![value])));
                }
                "get-tuple-element" => {
                    let index = usize::try_from(instruction.message.tuple_index).ok()?;
                    let Some(operand) = operands.first() else { continue };
                    let Some(start) = operand.starts.get(index) else { continue };
                    let element = *start..operand.first + operand.count;
                    function.holds.extend((own.first..own.first + own.count).zip(element.map(|value| vec![value])));
                }
                // the condition of a select is not an index
                "select" => hold(operands.get(1..).unwrap_or_default())?,
                "gather" | "dynamic-slice" => hold(operands.get(..1).unwrap_or_default())?,
                opcode if KEEPS.contains(&opcode) => hold(&operands)?,
                "call" | "while" | "conditional" => {
                    for (place, callee) in instruction.called().iter().enumerate() {
                        // each branch has its own operand, after the one that chooses
                        let given = match instruction.opcode() {
                            "conditional" => operands.get(place + 1..=place + 1).unwrap_or_default(),
                            _ => &operands[..],
                        };
                        *left = left.checked_sub(given.iter().map(|operand| operand.count).sum())?;
                        let given = given.iter().flat_map(|operand| operand.first..operand.first + operand.count);
                        function.calls.push((*callee, given.map(Some).collect()));
                    }
                    // the values that a loop leaves unchanged; its body comes before its condition
                    if instruction.opcode() != "conditional"
                        && let Some(call) = function.calls.len().checked_sub(instruction.called().len())
                    {
                        let results = (0..own.count).map(|value| (own.first + value, (call, Some(value))));
                        function.results.extend(results);
                    }
                }
                _ => {}
            }
            function.indices.extend(indices(instruction, &operands).unwrap_or_default());
        }
        let root = self.by_id.get(&root);
        function.returns = root.map(|root| (root.first..root.first + root.count).collect()).unwrap_or_default();
        Some(function)
    }
}

/// The operands of an operation that are indices, each with the size of its range.
fn indices(instruction: &HloInstruction, operands: &[&Values<'_>]) -> Option<Vec<(usize, u64)>> {
    let message = &instruction.message;
    let dims = |at: usize| operands.get(at).map(|operand| &operand.shape.dimensions[..]);
    let (first, counts) = match instruction.opcode() {
        "gather" => {
            let mapped = &message.gather_dimension_numbers.as_ref()?.start_index_map;
            (1, vec![places::of_gather(dims(0)?, &message.gather_slice_sizes, mapped)])
        }
        "scatter" if operands.len() == 3 => {
            let dimensions = message.scatter_dimension_numbers.as_deref()?;
            (1, vec![places::of_scatter(dims(0)?, dims(2)?, dimensions)])
        }
        "dynamic-slice" => (1, places::of_slice(dims(0)?, &message.dynamic_slice_sizes)),
        "dynamic-update-slice" => (2, places::of_slice(dims(0)?, dims(1)?)),
        _ => return None,
    };
    let is_slice = instruction.opcode().starts_with("dynamic");
    let given = operands.get(first..)?.iter().zip(counts);
    // earlier versions pass a slice's indices in one array
    let given = given.filter(|(operand, _)| operand.count == 1 && (!is_slice || operand.shape.dimensions.is_empty()));
    Some(given.filter_map(|(operand, count)| Some((operand.first, count?))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const LOOPS: &[u8] = include_bytes!("../../../../../tests/data/hlo/indices_in_loops.hlo.pb");
    const EMBEDDING: &[u8] = include_bytes!("../../../../../tests/data/hlo/embedding.hlo.pb");

    /// The text of the same program gives the same ranges (`make_indices.py`).
    #[test]
    fn indices_in_loops_are_in_range() {
        assert_eq!(index_ranges(LOOPS), [None, Some(1000), None, Some(993), Some(1000)]);
    }

    /// The range that JAX leaves unchanged for each argument: `make_indices.py` ran the program with each number.
    #[test]
    fn an_index_is_in_the_range_that_jax_neither_fills_nor_drops_nor_clamps() {
        let found: Value =
            serde_json::from_slice(include_bytes!("../../../../../tests/data/hlo/embedding.json")).unwrap();
        let program = crate::hlo::read_program(EMBEDDING, "embedding").unwrap();
        assert_eq!(serde_json::to_value(program.index_ranges()).unwrap(), found["in_range"]);
    }

    #[test]
    fn damaged_modules_have_no_ranges_or_some() {
        for bytes in [LOOPS, EMBEDDING] {
            for at in (0..bytes.len()).step_by(61) {
                let _ = index_ranges(&bytes[..at]);
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 0x83;
                let _ = index_ranges(&flipped);
            }
        }
    }
}
