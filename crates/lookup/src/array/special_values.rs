//! Values that fast arithmetic need not honour: NaN, infinities, denormals. Plants them in inputs and compares the
//! outputs.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::element::{Element, for_each_pair};
use super::{ArraySpec, DType};

/// One in this many elements gets such a value, and at least one.
const SPACING: usize = 512;

/// A kind of values that fast arithmetic need not honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SpecialKind {
    /// No number.
    Nan,
    /// Either infinity.
    Infinities,
    /// Numbers so small that their precision is less than the type's, which a fast program may treat as zero.
    Denormals,
}

impl SpecialKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Nan, Self::Infinities, Self::Denormals];

    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nan => "NaN",
            Self::Infinities => "infinities",
            Self::Denormals => "denormals",
        }
    }

    /// Bits of two such values of a type with this many bytes; `None` if the type has none, or they are not planted in
    /// it.
    fn bits(self, dtype: DType) -> Option<(usize, [u64; 2])> {
        let (width, mantissa): (usize, u32) = match dtype {
            DType::F64 | DType::C128 => (8, 52),
            DType::F32 | DType::C64 => (4, 23),
            DType::F16 => (2, 10),
            DType::Bf16 => (2, 7),
            _ => return None,
        };
        let sign = 1_u64 << (8 * width - 1);
        let infinity = (sign - 1) >> mantissa << mantissa;
        let half = 1_u64 << (mantissa - 1);
        Some((
            width,
            match self {
                Self::Nan => [infinity | half; 2],
                Self::Infinities => [infinity, sign | infinity],
                Self::Denormals => [half, half >> 1],
            },
        ))
    }
}

/// Puts values of a kind into a dense host array, at places that follow from the seed; of complex numbers into the real
/// part. Returns how many elements were changed: none for a type without such values.
pub fn plant(spec: &ArraySpec, bytes: &mut [u8], special: SpecialKind, seed: u64) -> usize {
    let Some((width, values)) = special.bits(spec.dtype) else { return 0 };
    let element = spec.dtype.host_bytes();
    let elements = bytes.len() / element;
    if elements == 0 {
        return 0;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let count = 1 + elements / SPACING;
    for (_, value) in (0..count).zip(values.into_iter().cycle()) {
        // the bias of a remainder over 2^64 does not matter for a place
        let at = (random.next_u64() % elements as u64) as usize * element;
        if let Some((place, value)) = bytes.get_mut(at..at + width).zip(value.to_le_bytes().get(..width)) {
            place.copy_from_slice(value);
        }
    }
    count
}

/// Number of elements whose class differs between two dense host arrays of one spec: NaN, an infinity by its sign, a
/// denormal, another number. Integers and booleans have to be equal. Arrays of another size differ throughout.
pub fn other_class(spec: &ArraySpec, ours: &[u8], reference: &[u8]) -> u64 {
    let is_whole = |bytes: &[u8]| spec.host_bytes() == Some(bytes.len() as u64);
    if !is_whole(ours) || !is_whole(reference) {
        return spec.elements().unwrap_or(u64::MAX);
    }
    other_class_in(spec.dtype, ours, reference)
}

/// The same of blocks of two arrays, of as many elements each.
pub fn other_class_in(dtype: DType, ours: &[u8], reference: &[u8]) -> u64 {
    let mut differing = 0;
    let class = |value| class(dtype, value);
    for_each_pair(dtype, ours, reference, |a, b| {
        let is_same = match (a, b) {
            (Element::Real(a), Element::Real(b)) => class(a) == class(b),
            (Element::Complex(a, c), Element::Complex(b, d)) => (class(a), class(c)) == (class(b), class(d)),
            (a, b) => a == b,
        };
        differing += u64::from(!is_same);
    });
    differing
}

/// NaN, minus infinity, infinity, a denormal, any other number; of types whose denormals are not planted, these are
/// numbers.
fn class(dtype: DType, value: f64) -> u8 {
    let least = match dtype {
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F32 | DType::C64 | DType::Bf16 => f64::from(f32::MIN_POSITIVE),
        DType::F16 => 2.0_f64.powi(-14),
        _ => 0.0,
    };
    if value.is_nan() {
        0
    } else if value.is_infinite() {
        1 + u8::from(value > 0.0)
    } else {
        3 + u8::from(value == 0.0 || value.abs() >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_of_its_class_and_seen_as_such() {
        let ones = 1.0_f32.to_le_bytes().repeat(1024);
        let spec: ArraySpec = "f32[1024]".parse().unwrap();
        let values = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
        };
        for special in SpecialKind::ALL {
            let mut planted = ones.clone();
            assert_eq!(plant(&spec, &mut planted, special, 7), 3);
            let found: Vec<f32> = values(&planted).into_iter().filter(|value| *value != 1.0).collect();
            let is_special = |value: &f32| match special {
                SpecialKind::Nan => value.is_nan(),
                SpecialKind::Infinities => value.is_infinite(),
                SpecialKind::Denormals => value.is_subnormal(),
            };
            assert!((1..=3).contains(&found.len()) && found.iter().all(is_special), "{special:?}: {found:?}");
            assert_eq!(other_class(&spec, &planted, &ones), found.len() as u64);
            assert_eq!(other_class(&spec, &planted, &planted), 0);
            let mut again = ones.clone();
            plant(&spec, &mut again, special, 7);
            assert_eq!(again, planted);
        }
        // 0x7f80 is the infinity of bf16, 0x7c00 that of f16
        for (spec, infinity) in [("bf16[1]", 0x7f80_u16), ("f16[1]", 0x7c00)] {
            let mut bytes = vec![0; 2];
            plant(&spec.parse().unwrap(), &mut bytes, SpecialKind::Infinities, 0);
            assert_eq!(u16::from_le_bytes([bytes[0], bytes[1]]), infinity);
        }
        assert_eq!(plant(&"s32[4]".parse().unwrap(), &mut [0; 16], SpecialKind::Nan, 0), 0);
    }

    #[test]
    fn a_denormal_is_no_zero_and_a_number_is_any_other() {
        let spec: ArraySpec = "f32[3]".parse().unwrap();
        let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
        assert_eq!(other_class(&spec, &bytes([0.0, 1e-9, 5.0]), &bytes([-0.0, 0.0, 6.0])), 0);
        assert_eq!(other_class(&spec, &bytes([1e-40, 1.0, f32::INFINITY]), &bytes([0.0, 1.0, f32::NEG_INFINITY])), 2);
        assert_eq!(other_class(&spec, &[0; 8], &bytes([0.0; 3])), 3);
        assert_eq!(other_class(&"s32[1]".parse().unwrap(), &[1, 0, 0, 0], &[2, 0, 0, 0]), 1);
    }
}
