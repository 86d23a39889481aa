//! The types, elements and bytes of shapes.

use std::sync::LazyLock;

use super::graph::Type;
use super::schema::xla_data::{PrimitiveType, ShapeProto};
use crate::array::{ArraySpec, DType};

/// Bytes of a pointer; a tuple is a table of pointers.
const POINTER_BYTES: f64 = 8.0;
/// More than the numbers of primitive types.
const PRIMITIVE_TYPES: i32 = 64;

/// A dimension without a bound: `Shape::kUnboundedSize`, the smallest 64-bit integer.
const UNBOUNDED: u64 = 1 << 63;

/// The shape of what has none.
pub(super) static NO_SHAPE: ShapeProto = ShapeProto {
    element_type: PrimitiveType::Invalid as i32,
    dimensions: Vec::new(),
    tuple_shapes: Vec::new(),
    layout: None,
};

/// Element types by their numbers: XLA's names are those of HLO in capital letters.
static DTYPES: LazyLock<Vec<Option<DType>>> = LazyLock::new(|| {
    let dtype = |number| {
        let name = PrimitiveType::try_from(number).ok()?.as_str_name();
        DType::ALL.iter().copied().find(|dtype| dtype.name().eq_ignore_ascii_case(name))
    };
    (0..PRIMITIVE_TYPES).map(dtype).collect()
});

impl ShapeProto {
    /// The element type of an array; `None` for tuples, tokens and types unknown here.
    pub fn dtype(&self) -> Option<DType> {
        DTYPES.get(usize::try_from(self.element_type).ok()?).copied().flatten()
    }

    /// Whether it is a tuple.
    pub fn is_tuple(&self) -> bool {
        self.element_type == PrimitiveType::Tuple as i32
    }

    /// Its element type and dimensions, if it is an array; a dynamic dimension counts with its bound.
    pub fn array(&self) -> Option<ArraySpec> {
        self.dtype().map(|dtype| ArraySpec::new(dtype, self.dimensions.clone()))
    }

    /// The arrays and other shapes in it that are not tuples.
    pub fn leaves(&self) -> Vec<&Self> {
        let (mut open, mut leaves) = (vec![self], Vec::new());
        while let Some(shape) = open.pop() {
            if shape.is_tuple() {
                open.extend(shape.tuple_shapes.iter().rev());
            } else {
                leaves.push(shape);
            }
        }
        leaves
    }

    /// Bytes of all its arrays, by the bits of their elements. Shapes of unknown types count as zero.
    pub(super) fn packed_bytes(&self) -> u64 {
        let bytes = |leaf: &Self| {
            let elements = leaf.dimensions.iter().fold(1_u64, |product, &dim| product.saturating_mul(dim));
            let bits = leaf.dtype().map_or(0, |dtype| u64::from(dtype.bits()));
            elements.saturating_mul(bits).div_ceil(8)
        };
        self.leaves().into_iter().fold(0, |sum, leaf| sum.saturating_add(bytes(leaf)))
    }

    /// Elements of an array; other shapes count as a scalar, as in XLA.
    pub(super) fn elements(&self) -> f64 {
        self.dimensions.iter().map(|&dim| dim as f64).product()
    }

    /// The size of a dimension; 1 if there is no such dimension.
    pub(super) fn dim(&self, at: u64) -> u64 {
        usize::try_from(at).ok().and_then(|at| self.dimensions.get(at)).copied().unwrap_or(1)
    }

    /// Bytes that an instruction writes: for a tuple, everything in it.
    pub(super) fn written_bytes(&self) -> f64 {
        self.leaves().iter().fold(0.0, |sum, leaf| sum + leaf.operand_bytes())
    }

    /// Bytes of an operand: for a tuple, its table of pointers.
    pub(super) fn operand_bytes(&self) -> f64 {
        let packed_bits = self.layout.as_ref().map_or(0, |layout| layout.element_size_in_bits);
        match self.dtype() {
            Some(_) if packed_bits > 0 => (self.elements() * packed_bits as f64 / 8.0).ceil(),
            Some(dtype) => self.elements() * f64::from(dtype.bits().div_ceil(8)),
            None if self.is_tuple() => self.tuple_shapes.len() as f64 * POINTER_BYTES,
            None if self.element_type == PrimitiveType::OpaqueType as i32 => POINTER_BYTES,
            None => 0.0,
        }
    }

    /// Its first array, if it is a tuple.
    pub(super) fn first(&self) -> &Self {
        self.tuple_shapes.first().filter(|_| self.is_tuple()).unwrap_or(self)
    }

    /// From the fastest dimension to the slowest.
    pub(super) fn minor_to_major(&self) -> &[u64] {
        self.layout.as_ref().map(|layout| layout.minor_to_major.as_slice()).unwrap_or_default()
    }

    /// The type in a module's graph. Its depth is bounded where it was decoded.
    pub(super) fn to_type(&self) -> Type {
        if self.is_tuple() {
            return Type::Tuple(self.tuple_shapes.iter().map(Self::to_type).collect());
        }
        match self.array() {
            Some(array) if self.dimensions.iter().all(|&dim| dim < UNBOUNDED) => Type::Array(array),
            _ => Type::Other(self.spelling().into()),
        }
    }

    /// As HLO text spells what is no plain array: `f32[?,4]`, `token[]`.
    fn spelling(&self) -> String {
        let name = match PrimitiveType::try_from(self.element_type) {
            Ok(PrimitiveType::OpaqueType) => "opaque".to_owned(),
            Ok(known) => known.as_str_name().to_ascii_lowercase(),
            Err(_) => format!("type {}", self.element_type),
        };
        let dim = |&dim: &u64| if dim < UNBOUNDED { dim.to_string() } else { "?".to_owned() };
        let dims: Vec<String> = self.dimensions.iter().map(dim).collect();
        format!("{name}[{}]", dims.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_its_number() {
        let found: Vec<DType> = DTYPES.iter().copied().flatten().collect();
        assert_eq!(found.len(), DType::ALL.len(), "{found:?}");
        // `xla/xla_data.proto`
        for (number, dtype) in [(1, DType::Pred), (11, DType::F32), (16, DType::Bf16), (33, DType::F8E8M0Fnu)] {
            assert_eq!(ShapeProto { element_type: number, ..ShapeProto::default() }.dtype(), Some(dtype));
        }
        for number in [-1, 0, 13, 17, 34, 63, 64, i32::MAX] {
            assert_eq!(ShapeProto { element_type: number, ..ShapeProto::default() }.dtype(), None, "{number}");
        }
    }

    #[test]
    fn what_is_no_plain_array_keeps_its_spelling() {
        let shape = |element_type, dimensions: &[u64]| ShapeProto {
            element_type,
            dimensions: dimensions.to_vec(),
            ..ShapeProto::default()
        };
        let other = |spelling: &str| Type::Other(spelling.into());
        assert_eq!(shape(11, &[1 << 63, 4]).to_type(), other("f32[?,4]"));
        assert_eq!(shape(17, &[]).to_type(), other("token[]"));
        assert_eq!(shape(14, &[]).to_type(), other("opaque[]"));
        assert_eq!(shape(99, &[2]).to_type(), other("type 99[2]"));
        let pair = ShapeProto { tuple_shapes: vec![shape(15, &[3]), shape(30, &[8])], ..shape(13, &[]) };
        assert_eq!(pair.to_type(), Type::Tuple(vec![Type::Array("c64[3]".parse().unwrap()), other("s1[8]")]));
    }
}
