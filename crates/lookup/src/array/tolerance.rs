//! How far outputs of one element type may be off.

use super::DType;
use crate::setters;

/// How far an element may be off: `|a - b| <= absolute + relative * min(|a|, |b|) + of_rms * rms(b)`.
///
/// The smaller of the two, so that no tolerance of a narrow type makes zero, or the least power of two, equal to
/// everything. The last part is scaled by the root mean square of the reference's finite elements: where a sum cancels
/// to nearly zero its error is that of the terms, which the element itself does not show.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Tolerance {
    /// Absolute part.
    pub absolute: f64,
    /// Part relative to the smaller of the two elements.
    pub relative: f64,
    /// Part relative to the root mean square of the whole reference.
    #[serde(default)]
    pub of_rms: f64,
}

setters!(Tolerance { absolute: f64, relative: f64, of_rms: f64 });

impl Tolerance {
    /// Bit for bit, except that NaN equals NaN and zero equals negative zero.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0, of_rms: 0.0 };

    /// This many times as much.
    #[must_use]
    pub(super) fn times(self, factor: f64) -> Self {
        let Self { absolute, relative, of_rms } = self;
        Self { absolute: absolute * factor, relative: relative * factor, of_rms: of_rms * factor }
    }

    /// The tolerance for outputs of one element type, for programs that compute the same sums in another order.
    ///
    /// Let `e` be the type's spacing at one. A narrow result differs by the rounding of the last step and of a few
    /// intermediate ones, so a few `e`: `bf16` 3 e, `f16` 8 e, eight- and four-bit floats 1 e. For `f32` it is not
    /// `e` that counts but what matrix units do with `f32` operands: TF32 keeps ten mantissa bits, and two of
    /// its steps are 2e-3. `f64` has no such path and gets 1e-9, which leaves room for sums of a million terms.
    /// Integers and booleans are exact.
    pub fn for_dtype(dtype: DType) -> Self {
        let both = |part: f64| Self { absolute: 0.0, relative: part, of_rms: part };
        match dtype {
            DType::F64 | DType::C128 => both(1e-9),
            DType::F32 | DType::C64 => both(2e-3),
            DType::F16 => both(8.0 / 1024.0),
            DType::Bf16 => both(3.0 / 128.0),
            DType::F8E3M4 => both(1.0 / 16.0),
            DType::F8E4M3 | DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F8E4M3B11Fnuz => both(1.0 / 8.0),
            DType::F8E5M2 | DType::F8E5M2Fnuz => both(1.0 / 4.0),
            DType::F4E2M1Fn => both(1.0 / 2.0),
            DType::F8E8M0Fnu => Self { absolute: 0.0, relative: 1.0, of_rms: 0.0 },
            DType::Pred
            | DType::S2
            | DType::S4
            | DType::S8
            | DType::S16
            | DType::S32
            | DType::S64
            | DType::U2
            | DType::U4
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => Self::EXACT,
        }
    }
}

impl DType {
    /// The spacing of results at one, as far as it counts for outputs: of `f32` that of TF32, which matrix units use
    /// for it, and of `f64` its tolerance. `None` for integers and booleans.
    pub(super) fn rounding(self) -> Option<f64> {
        Some(match self {
            Self::F64 | Self::C128 => 1e-9,
            Self::F32 | Self::C64 | Self::F16 => 1.0 / 1024.0,
            Self::Bf16 => 1.0 / 128.0,
            // the tolerance of other types with fractions is one step
            other if other.has_fractions() => Tolerance::for_dtype(other).relative,
            _ => return None,
        })
    }
}
