//! Arrays in `f64`, and how far an array is from what a program in `f64` gives.

use serde::{Deserialize, Serialize};

use super::Finiteness;
use super::element::{Element, decode, for_each, push_float};
use super::{ArraySpec, Comparing, DType, Tolerance};

impl DType {
    /// The type of the most precision that holds all of its values: `f64` for real numbers, `c128` for complex ones.
    /// Integers and booleans stay.
    pub fn in_f64(self) -> Self {
        match self {
            _ if self.is_float() => Self::F64,
            _ if self.is_complex() => Self::C128,
            other => other,
        }
    }

    /// The value of this real floating-point type that is nearest to a number; ties go to the even one. `None` for
    /// other types.
    pub fn nearest(self, value: f64) -> Option<f64> {
        let mut bytes = Vec::new();
        let real = |element| match element {
            Element::Real(value) => Some(value),
            _ => None,
        };
        push_float(self, value, &mut bytes).then(|| decode(self, &bytes).and_then(real)).flatten()
    }
}

impl ArraySpec {
    /// The same array in [`DType::in_f64`].
    #[must_use]
    pub fn in_f64(&self) -> Self {
        Self { dtype: self.dtype.in_f64(), dims: self.dims.clone() }
    }
}

/// The values of a dense host array in [`DType::in_f64`], exactly. A part of an element at the end is left out.
pub fn widened(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    if dtype.in_f64() == dtype {
        return bytes.to_vec();
    }
    let elements = bytes.len() / dtype.host_bytes();
    let mut wide = Vec::with_capacity(elements.saturating_mul(dtype.in_f64().host_bytes()));
    for_each(dtype, bytes, |element| match element {
        Element::Real(value) => wide.extend_from_slice(&value.to_le_bytes()),
        Element::Complex(re, im) => wide.extend([re, im].into_iter().flat_map(f64::to_le_bytes)),
        Element::Integer(_) => {}
    });
    wide
}

/// How far an array is from a reference in `f64`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArrayError {
    /// The largest absolute difference.
    pub max_absolute: f64,
    /// The same over the root mean square of the reference; absent if that is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_rms: Option<f64>,
    /// The largest of all elements' differences over what their [`Tolerance`] allows: up to one is within it.
    pub of_tolerance: f64,
    /// The root mean square of the differences over that of the reference; absent if that is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rms: Option<f64>,
    /// The largest root mean square of the differences of a row or tile, over what the [`Tolerance`] allows.
    #[serde(default)]
    pub of_tile: f64,
}

/// How far an array of floating-point numbers is from a reference, whose bytes are of [`DType::in_f64`]. `None` for
/// other types, for arrays of different sizes, and if an element is not finite in one of the two alone: nothing can be
/// subtracted.
pub fn error_of(spec: &ArraySpec, ours: &[u8], reference: &[u8], tolerance: Tolerance) -> Option<ArrayError> {
    let ours = widened(spec.dtype, ours);
    let found = Finiteness::of(spec.dtype.in_f64(), reference);
    if !spec.dtype.has_fractions() || ours.len() != reference.len() {
        return None;
    }
    let mut comparing = Comparing::new(&spec.in_f64(), tolerance, found.rms);
    comparing.block(&ours, reference);
    if comparing.is_unlike() {
        return None;
    }
    let compared = comparing.finish();
    let of_rms = |part: f64| (found.rms > 0.0).then(|| part / found.rms).filter(|ratio| ratio.is_finite());
    Some(ArrayError {
        max_absolute: compared.max_absolute,
        of_rms: of_rms(compared.max_absolute),
        of_tolerance: compared.worst.map_or(0.0, |worst| worst.of_tolerance),
        rms: of_rms(compared.rms),
        of_tile: compared.of_tile,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64s(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn pair_of(dtype: DType) -> ArraySpec {
        ArraySpec::new(dtype, [2])
    }

    #[test]
    fn values_are_widened_exactly() {
        // 1/3 in bf16 is 0x3eab = 0.333984375, in f16 0x3555 = 0.333251953125
        assert_eq!(widened(DType::Bf16, &[0xab, 0x3e, 0x80, 0xff]), f64s(&[0.333984375, f64::NEG_INFINITY]));
        assert_eq!(widened(DType::F16, &[0x55, 0x35]), f64s(&[0.333251953125]));
        let tenth = widened(DType::F32, &0.1_f32.to_le_bytes());
        assert_eq!(tenth, f64s(&[f64::from_bits(0x3FB9_9999_A000_0000)]));
        let pair = [0.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat();
        assert_eq!(widened(DType::C64, &pair), f64s(&[0.5, -2.0]));
        assert_eq!(widened(DType::S16, &[1, 2, 3]), [1, 2, 3]);
        let widest = "c64[2,3]".parse::<ArraySpec>().unwrap().in_f64().to_string();
        assert_eq!(
            (widest.as_str(), DType::F8E4M3Fn.in_f64(), DType::U8.in_f64()),
            ("c128[2,3]", DType::F64, DType::U8)
        );
        assert_eq!(DType::Bf16.nearest(1.0 / 3.0), Some(0.333984375));
        assert_eq!((DType::S32.nearest(1.0), DType::C64.nearest(1.0)), (None, None));
    }

    #[test]
    fn an_error_is_in_units_of_what_is_allowed() {
        // of f32: 2e-3 of the smaller element, and 2e-3 of the root mean square, which is 1 here
        let tolerance = Tolerance::for_dtype(DType::F32);
        let ones = f64s(&[1.0, 1.0]);
        let own = [1.0_f32, 0.75].map(f32::to_le_bytes).concat();
        let found = error_of(&pair_of(DType::F32), &own, &ones, tolerance).unwrap();
        assert_eq!((found.max_absolute, found.of_rms), (0.25, Some(0.25)));
        assert!((found.of_tolerance - 0.25 / (2e-3 + 0.75 * 2e-3)).abs() < 1e-9, "{found:?}");
        // what is allowed because the default differs from itself counts, too
        let slack = error_of(&pair_of(DType::F32), &own, &ones, tolerance.absolute(0.2465)).unwrap();
        assert!((slack.of_tolerance - 1.0).abs() < 1e-9, "{slack:?}");
        let zeros = error_of(&pair_of(DType::F32), &own, &f64s(&[0.0, 0.0]), tolerance).unwrap();
        assert_eq!((zeros.max_absolute, zeros.of_rms, zeros.of_tolerance), (1.0, None, f64::MAX));
        assert_eq!(error_of(&pair_of(DType::F32), &own, &f64s(&[1.0, f64::INFINITY]), tolerance), None);
        let nan = [1.0_f32, f32::NAN].map(f32::to_le_bytes).concat();
        assert_eq!(error_of(&pair_of(DType::F32), &nan, &ones, tolerance), None);
        assert_eq!(error_of(&pair_of(DType::F32), &own, &ones[..8], tolerance), None);
        assert_eq!(error_of(&pair_of(DType::S32), &own, &own, tolerance), None);
    }
}
