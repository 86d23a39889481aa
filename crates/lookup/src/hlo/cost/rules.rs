//! The cost of one instruction, by its opcode.

use super::amount::{Cost, FlopUnit};
use super::custom_call::{custom_call, trips};
use super::fusion::{Reads, fusion_bytes};
use super::graph::{Graph, Node};
use super::window;
use crate::hlo::schema::xla_data::{DotDimensionNumbers, ShapeProto};

/// Operations of a multiply-add.
const FMA: f64 = 2.0;
/// Multiply-adds of a product of complex numbers.
const COMPLEX_FMA: f64 = 4.0;

/// The cost of the instruction at `place`; `None` if it is unknown. `of_computations` and `reads` are those of the
/// computations before its own.
pub(super) fn cost_of(graph: &Graph<'_>, place: usize, of_computations: &[Cost], reads: &Reads) -> Option<Cost> {
    let node = graph.node(place)?;
    let inputs = node.operands.iter().filter_map(|&at| graph.node(at)).map(|one| one.shape.operand_bytes()).sum();
    let (output, elements) = (node.shape.written_bytes(), node.shape.elements());
    Instruction { graph, node, of_computations, reads, inputs, output, elements }.cost()
}

/// An instruction with what most rules need. Each rule is the next one's fallback.
struct Instruction<'a, 'm> {
    graph: &'a Graph<'m>,
    node: &'a Node<'m>,
    of_computations: &'a [Cost],
    reads: &'a Reads,
    /// Bytes of the operands.
    inputs: f64,
    /// Bytes written.
    output: f64,
    /// Elements of the result.
    elements: f64,
}

impl Instruction<'_, '_> {
    fn called(&self, number: usize) -> Option<&Cost> {
        self.of_computations.get(*self.node.called.get(number)?)
    }

    fn operand(&self, number: usize) -> Option<&ShapeProto> {
        self.graph.operand(self.node, number).map(|node| node.shape)
    }

    /// It reads its operands and writes its result.
    fn moved(&self) -> Cost {
        Cost::of_bytes(self.output + self.inputs)
    }

    /// The same, and a called computation's arithmetic so many times.
    fn applied(&self, number: usize, times: f64) -> Option<Cost> {
        let mut cost = self.moved();
        cost.add_arithmetic(self.called(number)?, times);
        Some(cost)
    }

    /// Of what calls computations.
    fn cost(&self) -> Option<Cost> {
        match self.node.opcode {
            "fusion" => {
                let bytes = fusion_bytes(self.graph, self.node, self.reads)?;
                Some(Cost { bytes, ..self.called(0)?.clone() })
            }
            "call" | "async-start" => self.called(0).cloned(),
            "while" => {
                let mut cost = self.called(0)?.clone();
                cost.add(self.called(1)?, 1.0);
                Some(cost)
            }
            "conditional" => {
                let mut cost = self.called(0)?.clone();
                for branch in 1..self.node.called.len() {
                    cost.join_branch(self.called(branch)?.clone());
                }
                Some(cost)
            }
            "custom-call" => custom_call(self.graph, self.node, self.inputs),
            "map" => self.applied(0, self.elements),
            "reduce" => self.applied(0, self.operand(0)?.elements() - self.node.shape.first().elements()),
            "reduce-window" => self.applied(0, window::reductions(window::window_of(self.node), self.node.shape)),
            "select-and-scatter" => {
                let sources = self.operand(1)?.elements();
                let window = window::elements(window::window_of(self.node));
                let mut cost = self.applied(0, sources * (window - 1.0))?;
                cost.add_arithmetic(self.called(1)?, sources);
                Some(cost)
            }
            _ => self.of_movement(),
        }
    }

    /// Of what moves data, or nothing.
    fn of_movement(&self) -> Option<Cost> {
        let (node, output) = (self.node, self.output);
        let bytes_of = |number: usize| self.operand(number).map_or(0.0, ShapeProto::operand_bytes);
        Some(match node.opcode {
            "parameter" | "constant" | "get-tuple-element" | "bitcast" | "domain" | "after-all" | "add-dependency" => {
                Cost::default()
            }
            // a table of pointers
            "tuple" => Cost::of_bytes(node.shape.operand_bytes()),
            "transpose" if is_bitcast(node, self.operand(0)?) => Cost::default(),
            "slice" => Cost::of_bytes(2.0 * output),
            "dynamic-slice" => Cost::of_bytes(2.0 * output + bytes_of(1)),
            "dynamic-update-slice" => Cost::of_bytes(2.0 * self.operand(1)?.operand_bytes() + bytes_of(2)),
            "gather" => Cost::of_bytes(2.0 * output + self.operand(1)?.operand_bytes()),
            "scatter" => {
                // n arrays, the indices, n updates
                let arrays = node.operands.len() / 2;
                let updates =
                    (arrays + 1..node.operands.len()).filter_map(|at| self.operand(at)).map(ShapeProto::operand_bytes);
                let mut cost = Cost::of_bytes(3.0 * updates.sum::<f64>() + self.operand(arrays)?.operand_bytes());
                cost.add_arithmetic(self.called(0)?, self.operand(arrays + 1)?.elements());
                cost
            }
            "infeed" => Cost::of_bytes(output),
            "outfeed" => {
                let operands = node.operands.iter().filter_map(|&at| self.graph.node(at));
                Cost::of_bytes(operands.map(|one| one.shape.written_bytes()).sum())
            }
            _ => return self.of_linear_algebra(),
        })
    }

    /// Of products, transforms, solvers and sorts.
    fn of_linear_algebra(&self) -> Option<Cost> {
        let node = self.node;
        let dtype = |number: usize| self.operand(number).map(ShapeProto::dtype);
        let matrix = |flops: f64| Some(self.moved().with_flops(FlopUnit::Matrix, dtype(0)?, flops));
        match node.opcode {
            "dot" => matrix(
                FMA * self.elements * contracted(node.message.dot_dimension_numbers.as_deref(), self.operand(0)?),
            ),
            "ragged-dot" => matrix(ragged_dot_flops(node, self.operand(0)?)?),
            "convolution" => matrix(FMA * window::convolution_multiply_adds(self.graph, node)?),
            "fft" => {
                let factors: f64 = node
                    .message
                    .fft_length
                    .iter()
                    .map(|length| f64::from(length.checked_ilog2().unwrap_or(0)))
                    .product();
                let first = self.operand(0)?.first();
                let flops = FMA * COMPLEX_FMA * factors * first.elements();
                Some(self.moved().with_flops(FlopUnit::Vector, first.dtype(), flops))
            }
            "triangular-solve" => {
                let (matrix, right) = (self.operand(0)?, self.operand(1)?);
                let flops = FMA * matrix.dimensions.last().copied()? as f64 * right.elements();
                let bytes = self.output + matrix.operand_bytes() / 2.0 + right.operand_bytes();
                Some(Cost::of_bytes(bytes).with_flops(FlopUnit::Vector, matrix.dtype(), flops))
            }
            "cholesky" => {
                let matrix = self.operand(0)?;
                let flops = (matrix.dimensions.last().copied()? as f64 * matrix.elements() / 3.0).floor();
                Some(Cost::of_bytes(matrix.operand_bytes()).with_flops(FlopUnit::Vector, matrix.dtype(), flops))
            }
            "sort" => {
                let elements = self.operand(0)?.elements();
                let flops = elements * elements.max(1.0).log2().ceil();
                Some(self.moved().with_flops(FlopUnit::Vector, dtype(0)?, flops))
            }
            _ => Some(self.of_elements()),
        }
    }

    /// Of what computes each element by itself, or only moves them.
    fn of_elements(&self) -> Cost {
        let (node, moved) = (self.node, self.moved());
        match node.opcode {
            "all-reduce" | "all-reduce-start" => {
                let arrays = node.shape.leaves().into_iter().filter(|leaf| leaf.dtype().is_some());
                let flops = arrays.map(ShapeProto::elements).sum();
                moved.with_flops(FlopUnit::Vector, node.shape.first().dtype(), flops)
            }
            "rng" => Cost { transcendentals: self.elements, ..moved },
            "rng-bit-generator" => {
                let elements = node.shape.leaves().iter().map(|leaf| leaf.elements()).sum();
                Cost { transcendentals: elements, ..moved }
            }
            opcode if is_transcendental(opcode) => Cost { transcendentals: self.elements, ..moved },
            opcode if is_elementwise(opcode) => {
                // a comparison's arithmetic has its operands' type
                let own = node.shape.dtype().filter(|dtype| *dtype != crate::array::DType::Pred);
                let dtype = own.or_else(|| self.operand(0)?.dtype());
                moved.with_flops(FlopUnit::Vector, dtype, self.elements)
            }
            _ => moved,
        }
    }
}

/// The cost of all iterations of a `while`; `None` if XLA did not record the trip count. The condition is evaluated
/// once more than the body.
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
fn contracted(dot: Option<&DotDimensionNumbers>, lhs: &ShapeProto) -> f64 {
    let dimensions = dot.map(|dot| dot.lhs_contracting_dimensions.as_slice()).unwrap_or_default();
    dimensions.iter().map(|&dimension| lhs.dim(dimension) as f64).product()
}

/// Every row of the left side is multiplied by the matrix of its group. If groups divide the contracted dimension, the
/// result has a matrix for each group, and together they sum up each element once.
fn ragged_dot_flops(node: &Node<'_>, lhs: &ShapeProto) -> Option<f64> {
    let ragged = node.message.ragged_dot_dimension_numbers.as_deref()?;
    let dot = ragged.dot_dimension_numbers.as_ref()?;
    let contracting = &dot.lhs_contracting_dimensions;
    let is_contracted = ragged.lhs_ragged_dimensions.iter().any(|dimension| contracting.contains(dimension));
    let groups = if is_contracted { node.shape.dim(0).max(1) as f64 } else { 1.0 };
    Some(FMA * node.shape.elements() * contracted(Some(dot), lhs) / groups)
}

/// Whether a transposition leaves every element where it is: `ShapeUtil::TransposeIsBitcast`.
fn is_bitcast(node: &Node<'_>, input: &ShapeProto) -> bool {
    let (own, of_input) = (node.shape.minor_to_major(), input.minor_to_major());
    let from = own.iter().map(|&at| node.message.dimensions.get(usize::try_from(at).ok()?));
    own.len() == of_input.len() && from.eq(of_input.iter().map(Some))
}
