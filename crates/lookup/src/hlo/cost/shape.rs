//! The elements and bytes of shapes.

use crate::array::DType;
use crate::hlo::proto::dtype;
use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

/// Maximum nesting of tuples.
const MAX_DEPTH: usize = 16;
/// Bytes of a pointer; a tuple is a table of pointers.
const POINTER_BYTES: f64 = 8.0;

/// `PrimitiveType` numbers without elements: `xla/xla_data.proto`.
const TUPLE: u64 = 13;
const OPAQUE: u64 = 14;

/// A `ShapeProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::hlo) struct Shape {
    element: u64,
    pub(in crate::hlo) dims: Vec<u64>,
    pub(in crate::hlo) tuple: Vec<Shape>,
    /// From the fastest dimension to the slowest.
    pub(super) minor_to_major: Vec<u64>,
    /// Bits of an element where elements are packed.
    packed_bits: u64,
}

impl Shape {
    pub(in crate::hlo) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode_within(bytes, MAX_DEPTH)
    }

    fn decode_within(bytes: &[u8], depth: usize) -> Result<Self, WireError> {
        let mut shape = Self::default();
        for field in WireCursor::new(bytes) {
            match field? {
                (2, WireValue::Varint(number)) => shape.element = number,
                (3, value) => repeated_varints(value, &mut shape.dims)?,
                (4, WireValue::Bytes(inner)) => match depth.checked_sub(1) {
                    Some(depth) => shape.tuple.push(Self::decode_within(inner, depth)?),
                    None => return Err(WireError { what: "tuples within tuples, too deep to count", offset: 0 }),
                },
                (5, WireValue::Bytes(layout)) => shape.layout(layout)?,
                _ => {}
            }
        }
        Ok(shape)
    }

    fn layout(&mut self, layout: &[u8]) -> Result<(), WireError> {
        for field in WireCursor::new(layout) {
            match field? {
                (1, value) => repeated_varints(value, &mut self.minor_to_major)?,
                (7, WireValue::Varint(bits)) => self.packed_bits = bits,
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn is_tuple(&self) -> bool {
        self.element == TUPLE
    }

    /// The element type of an array.
    pub(super) fn dtype(&self) -> Option<DType> {
        dtype(self.element)
    }

    pub(super) fn is_array(&self) -> bool {
        self.dtype().is_some()
    }

    /// Elements of an array; other shapes count as a scalar, as in XLA.
    pub(super) fn elements(&self) -> f64 {
        self.dims.iter().map(|&dim| dim as f64).product()
    }

    /// The size of a dimension; 1 if there is no such dimension.
    pub(super) fn dim(&self, at: u64) -> u64 {
        usize::try_from(at).ok().and_then(|at| self.dims.get(at)).copied().unwrap_or(1)
    }

    /// Bytes that an instruction writes: for a tuple, everything in it.
    pub(super) fn written_bytes(&self) -> f64 {
        self.leaves().iter().fold(0.0, |sum, leaf| sum + leaf.bytes())
    }

    /// Bytes of an operand: for a tuple, its table of pointers.
    pub(super) fn bytes(&self) -> f64 {
        match (self.element, self.dtype()) {
            (TUPLE, _) => self.tuple.len() as f64 * POINTER_BYTES,
            (OPAQUE, _) => POINTER_BYTES,
            (_, Some(_)) if self.packed_bits > 0 => (self.elements() * self.packed_bits as f64 / 8.0).ceil(),
            (_, Some(dtype)) => self.elements() * f64::from(dtype.bits().div_ceil(8)),
            (_, None) => 0.0,
        }
    }

    /// The arrays and other shapes in it that are not tuples.
    pub(in crate::hlo) fn leaves(&self) -> Vec<&Self> {
        let (mut open, mut leaves) = (vec![self], Vec::new());
        while let Some(shape) = open.pop() {
            if shape.is_tuple() {
                open.extend(shape.tuple.iter().rev());
            } else {
                leaves.push(shape);
            }
        }
        leaves
    }

    /// Its first array, if it is a tuple.
    pub(super) fn first(&self) -> &Self {
        self.tuple.first().filter(|_| self.is_tuple()).unwrap_or(self)
    }
}
