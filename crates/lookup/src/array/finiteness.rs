//! How many elements of an array are finite, and how large those are.

use super::DType;
use super::element::{Element, for_each};

/// The finiteness of an array's real or complex elements.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Finiteness {
    /// Elements.
    pub elements: u64,
    /// Those that are finite.
    pub finite: u64,
    /// NaNs.
    pub nan: u64,
    /// Root mean square of the finite ones.
    pub rms: f64,
}

impl Finiteness {
    pub(super) fn of(dtype: DType, bytes: &[u8]) -> Self {
        let mut counting = Counting::new(dtype);
        counting.block(bytes);
        counting.finish()
    }
}

/// [`Finiteness`] of an array whose blocks come one after the other. Where they are cut changes nothing.
#[derive(Debug, Clone)]
pub struct Counting {
    dtype: DType,
    found: Finiteness,
    /// Finite elements.
    sized: u64,
    /// The largest power of two that is no larger than the largest of them, and the sum of their squares, each over it:
    /// squares of `f64` elements may overflow, and a division by a power of two rounds nothing.
    scale: f64,
    sum: f64,
}

impl Counting {
    /// Nothing is seen yet.
    pub fn new(dtype: DType) -> Self {
        let found = Finiteness { elements: 0, finite: 0, nan: 0, rms: 0.0 };
        Self { dtype, found, sized: 0, scale: f64::MIN_POSITIVE, sum: 0.0 }
    }

    /// Counts the next elements.
    pub fn block(&mut self, bytes: &[u8]) {
        let Self { dtype, ref mut found, ref mut sized, ref mut scale, ref mut sum } = *self;
        for_each(dtype, bytes, |element| {
            let (re, im) = match element {
                Element::Integer(_) => (0.0, 0.0),
                Element::Real(value) => (value, 0.0),
                Element::Complex(re, im) => (re, im),
            };
            found.elements += 1;
            found.finite += u64::from(re.is_finite() && im.is_finite());
            found.nan += u64::from(re.is_nan() || im.is_nan());
            let Some(size) = finite_magnitude(element) else { return };
            *sized += 1;
            if size >= 2.0 * *scale {
                let exponent = f64::from_bits(size.to_bits() & f64::INFINITY.to_bits());
                *sum *= (*scale / exponent).powi(2);
                *scale = exponent;
            }
            *sum += (size / *scale).powi(2);
        });
    }

    /// What was seen.
    pub fn finish(self) -> Finiteness {
        let mean = if self.sized > 0 { self.sum / self.sized as f64 } else { 0.0 };
        Finiteness { rms: self.scale * mean.sqrt(), ..self.found }
    }
}

/// An element's absolute value, if it is finite.
pub(super) fn finite_magnitude(element: Element) -> Option<f64> {
    let size = match element {
        Element::Real(value) => value.abs(),
        Element::Integer(value) => value.unsigned_abs() as f64,
        Element::Complex(re, im) => re.hypot(im),
    };
    size.is_finite().then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{ArraySpec, Reference, Tolerance};

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_finite_is_counted_and_sized() {
        let look = |dtype: DType, bytes: &[u8]| {
            let spec = ArraySpec::new(dtype, [(bytes.len() / dtype.host_bytes()) as u64]);
            Reference::new(spec, bytes.to_vec(), Tolerance::for_dtype(dtype)).finiteness()
        };
        let mixed = look(DType::F32, &f32s(&[3.0, f32::NAN, -4.0, f32::INFINITY, f32::NAN])).unwrap();
        assert_eq!((mixed.elements, mixed.finite, mixed.nan), (5, 2, 2));
        assert!((mixed.rms - 12.5_f64.sqrt()).abs() < 1e-9, "of the two that are finite: {}", mixed.rms);
        let complex = look(DType::C64, &f32s(&[1.0, f32::NAN, 3.0, 4.0])).unwrap();
        assert_eq!((complex.elements, complex.finite, complex.nan, complex.rms), (2, 1, 1, 5.0));
        let none = look(DType::Bf16, &[0x80, 0x7f, 0xc0, 0x7f]).unwrap();
        assert_eq!((none.elements, none.finite, none.nan, none.rms), (2, 0, 1, 0.0));
        assert_eq!(
            (look(DType::S32, &[0xff; 8]), look(DType::Pred, &[1; 8]), look(DType::F32, &[])),
            (None, None, None)
        );
    }
}
