//! The cost of one instruction, by its opcode.

use super::amount::{Cost, FlopUnit};
use super::custom_call::{custom_call, trips};
use super::fusion::{Reads, fusion_bytes};
use super::graph::{Graph, Node, numbers};
use super::shape::Shape;
use super::window;

/// Operations of a multiply-add.
const FMA: f64 = 2.0;
/// Multiply-adds of a product of complex numbers.
const COMPLEX_FMA: f64 = 4.0;

/// Field numbers of `HloInstructionProto`, `DotDimensionNumbers` and `RaggedDotDimensionNumbers`.
const DIMENSIONS: u32 = 14;
const DOT_DIMENSIONS: u32 = 30;
const FFT_LENGTH: u32 = 32;
const RAGGED_DOT_DIMENSIONS: u32 = 90;
const LHS_CONTRACTING: u32 = 1;
const LHS_RAGGED: u32 = 2;

/// The cost of the instruction at `place`; `None` if it is unknown. `of_computations` and `reads` are those of the computations
/// before its own.
pub(super) fn cost_of(graph: &Graph<'_>, place: usize, of_computations: &[Cost], reads: &Reads) -> Option<Cost> {
    let node = graph.node(place)?;
    let called = |number: usize| of_computations.get(*node.called.get(number)?);
    let operand = |number: usize| graph.operand(node, number).map(|node| &node.shape);
    let inputs: f64 = node.operands.iter().filter_map(|&at| graph.node(at)).map(|one| one.shape.bytes()).sum();
    let (output, elements) = (node.shape.written_bytes(), node.shape.elements());
    let moved = Cost::of_bytes(output + inputs);
    let applied = |number: usize, times: f64| -> Option<Cost> {
        let mut cost = Cost::of_bytes(output + inputs);
        cost.add_arithmetic(called(number)?, times);
        Some(cost)
    };
    Some(match node.opcode {
        "parameter" | "constant" | "get-tuple-element" | "bitcast" | "domain" | "after-all" | "add-dependency" => {
            Cost::default()
        }
        // a table of pointers
        "tuple" => Cost::of_bytes(node.shape.bytes()),
        "transpose" if is_bitcast(node, operand(0)?) => Cost::default(),
        "slice" => Cost::of_bytes(2.0 * output),
        "dynamic-slice" => Cost::of_bytes(2.0 * output + operand(1).map_or(0.0, Shape::bytes)),
        "dynamic-update-slice" => Cost::of_bytes(2.0 * operand(1)?.bytes() + operand(2).map_or(0.0, Shape::bytes)),
        "gather" => Cost::of_bytes(2.0 * output + operand(1)?.bytes()),
        "scatter" => {
            // n arrays, the indices, n updates
            let arrays = node.operands.len() / 2;
            let updates = (arrays + 1..node.operands.len()).filter_map(operand).map(Shape::bytes);
            let mut cost = Cost::of_bytes(3.0 * updates.sum::<f64>() + operand(arrays)?.bytes());
            cost.add_arithmetic(called(0)?, operand(arrays + 1)?.elements());
            cost
        }
        "dot" => {
            let width = contracted(node.bytes_of(DOT_DIMENSIONS).next().unwrap_or_default(), operand(0)?)?;
            moved.with_flops(FlopUnit::Matrix, operand(0)?.dtype(), FMA * elements * width)
        }
        "ragged-dot" => moved.with_flops(FlopUnit::Matrix, operand(0)?.dtype(), ragged_dot_flops(node, operand(0)?)?),
        "convolution" => {
            let multiply_adds = window::convolution_multiply_adds(graph, node)?;
            moved.with_flops(FlopUnit::Matrix, operand(0)?.dtype(), FMA * multiply_adds)
        }
        "fft" => {
            let lengths = node.numbers_of(FFT_LENGTH).ok()?;
            let factors: f64 = lengths.iter().map(|length| f64::from(length.checked_ilog2().unwrap_or(0))).product();
            let flops = FMA * COMPLEX_FMA * factors * operand(0)?.first().elements();
            moved.with_flops(FlopUnit::Vector, operand(0)?.first().dtype(), flops)
        }
        "triangular-solve" => {
            let (matrix, right) = (operand(0)?, operand(1)?);
            let flops = FMA * matrix.dims.last().copied()? as f64 * right.elements();
            let bytes = output + matrix.bytes() / 2.0 + right.bytes();
            Cost::of_bytes(bytes).with_flops(FlopUnit::Vector, matrix.dtype(), flops)
        }
        "cholesky" => {
            let matrix = operand(0)?;
            let flops = (matrix.dims.last().copied()? as f64 * matrix.elements() / 3.0).floor();
            Cost::of_bytes(matrix.bytes()).with_flops(FlopUnit::Vector, matrix.dtype(), flops)
        }
        "map" => applied(0, elements)?,
        "reduce" => applied(0, operand(0)?.elements() - node.shape.first().elements())?,
        "reduce-window" => applied(0, window::reductions(&window::window_of(node).ok()?, &node.shape))?,
        "select-and-scatter" => {
            let (sources, window) = (operand(1)?.elements(), window::elements(&window::window_of(node).ok()?));
            let mut cost = applied(0, sources * (window - 1.0))?;
            cost.add_arithmetic(called(1)?, sources);
            cost
        }
        "sort" => {
            let elements = operand(0)?.elements();
            moved.with_flops(FlopUnit::Vector, operand(0)?.dtype(), elements * elements.max(1.0).log2().ceil())
        }
        "all-reduce" | "all-reduce-start" => {
            let arrays = node.shape.leaves().into_iter().filter(|leaf| leaf.is_array());
            let flops = arrays.map(Shape::elements).sum();
            moved.with_flops(FlopUnit::Vector, node.shape.first().dtype(), flops)
        }
        "rng" => Cost { transcendentals: elements, ..moved },
        "rng-bit-generator" => {
            let elements = node.shape.leaves().iter().map(|leaf| leaf.elements()).sum();
            Cost { transcendentals: elements, ..moved }
        }
        "infeed" => Cost::of_bytes(output),
        "outfeed" => {
            let operands = node.operands.iter().filter_map(|&at| graph.node(at));
            Cost::of_bytes(operands.map(|one| one.shape.written_bytes()).sum())
        }
        "fusion" => Cost { bytes: fusion_bytes(graph, node, reads)?, ..called(0)?.clone() },
        "call" | "async-start" => called(0)?.clone(),
        "while" => {
            let mut cost = called(0)?.clone();
            cost.add(called(1)?, 1.0);
            cost
        }
        "conditional" => {
            let mut cost = called(0)?.clone();
            for branch in 1..node.called.len() {
                cost.join_branch(called(branch)?.clone());
            }
            cost
        }
        "custom-call" => custom_call(graph, node, inputs)?,
        opcode if is_transcendental(opcode) => Cost { transcendentals: elements, ..moved },
        opcode if is_elementwise(opcode) => {
            // a comparison's arithmetic has its operands' type
            let own = node.shape.dtype().filter(|dtype| *dtype != crate::array::DType::Pred);
            let dtype = own.or_else(|| operand(0)?.dtype());
            moved.with_flops(FlopUnit::Vector, dtype, elements)
        }
        _ => moved,
    })
}

/// The cost of all iterations of a `while`; `None` if XLA did not record the trip count. The condition is evaluated once more
/// than the body.
pub(super) fn cost_of_loop(node: &Node<'_>, of_computations: &[Cost]) -> Option<Cost> {
    let trips = trips(node)?;
    let called = |number: usize| of_computations.get(*node.called.get(number)?);
    let mut cost = Cost::default();
    cost.add(called(0)?, trips);
    cost.add(called(1)?, trips + 1.0);
    Some(cost)
}

fn is_transcendental(opcode: &str) -> bool {
    matches!(
        opcode,
        "acos"
            | "acosh"
            | "asin"
            | "asinh"
            | "atanh"
            | "cosh"
            | "erf"
            | "exponential"
            | "exponential-minus-one"
            | "log"
            | "log-plus-one"
            | "logistic"
            | "power"
            | "sqrt"
            | "cbrt"
            | "rsqrt"
            | "tanh"
            | "sine"
            | "cosine"
            | "sinh"
            | "tan"
            | "atan2"
    )
}

fn is_elementwise(opcode: &str) -> bool {
    matches!(
        opcode,
        "abs"
            | "add"
            | "and"
            | "bitcast-convert"
            | "ceil"
            | "clamp"
            | "compare"
            | "complex"
            | "convert"
            | "count-leading-zeros"
            | "divide"
            | "floor"
            | "imag"
            | "is-finite"
            | "maximum"
            | "minimum"
            | "multiply"
            | "negate"
            | "not"
            | "or"
            | "popcnt"
            | "real"
            | "reduce-precision"
            | "remainder"
            | "round-nearest-afz"
            | "round-nearest-even"
            | "select"
            | "shift-left"
            | "shift-right-arithmetic"
            | "shift-right-logical"
            | "sign"
            | "stochastic-convert"
            | "subtract"
            | "xor"
    )
}

/// Elements that each element of a dot's result sums up.
fn contracted(dot: &[u8], lhs: &Shape) -> Option<f64> {
    let dimensions = numbers(dot, LHS_CONTRACTING).ok()?;
    Some(dimensions.iter().map(|&dimension| lhs.dim(dimension) as f64).product())
}

/// Every row of the left side is multiplied by the matrix of its group. If groups divide the contracted dimension, the
/// result has a matrix for each group, and together they sum up each element once.
fn ragged_dot_flops(node: &Node<'_>, lhs: &Shape) -> Option<f64> {
    let ragged = node.bytes_of(RAGGED_DOT_DIMENSIONS).next()?;
    let dot = crate::wire::WireCursor::new(ragged)
        .map_while(Result::ok)
        .find_map(|(field, value)| (field == 1).then(|| value.as_bytes()).flatten())?;
    let is_contracted = {
        let contracting = numbers(dot, LHS_CONTRACTING).ok()?;
        numbers(ragged, LHS_RAGGED).ok()?.iter().any(|dimension| contracting.contains(dimension))
    };
    let groups = if is_contracted { node.shape.dim(0).max(1) as f64 } else { 1.0 };
    Some(FMA * node.shape.elements() * contracted(dot, lhs)? / groups)
}

/// Whether a transposition leaves every element where it is: `ShapeUtil::TransposeIsBitcast`.
fn is_bitcast(node: &Node<'_>, input: &Shape) -> bool {
    let Ok(dimensions) = node.numbers_of(DIMENSIONS) else { return false };
    let from = node.shape.minor_to_major.iter().map(|&at| usize::try_from(at).ok().and_then(|at| dimensions.get(at)));
    node.shape.minor_to_major.len() == input.minor_to_major.len() && from.eq(input.minor_to_major.iter().map(Some))
}
