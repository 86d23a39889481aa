//! Element types, by the names that HLO uses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! dtypes {
    ($($variant:ident $name:literal $bits:literal $pjrt:literal $doc:literal),+ $(,)?) => {
        /// An element type. Names and widths are those of XLA's `PrimitiveType`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] $variant),+
        }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// HLO's name: `f32`, `bf16`, `pred`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Significant bits of one element; `pred` counts as eight, as it is stored.
            pub fn bits(self) -> u32 {
                match self { $(Self::$variant => $bits),+ }
            }

            /// `PJRT_Buffer_Type` number (pjrt_c_api.h, enum of that name).
            pub fn pjrt_type(self) -> i32 {
                match self { $(Self::$variant => $pjrt),+ }
            }

            /// The element type of a `PJRT_Buffer_Type` number.
            pub fn from_pjrt_type(number: i32) -> Option<Self> {
                match number { $($pjrt => Some(Self::$variant),)+ _ => None }
            }
        }

        impl FromStr for DType {
            type Err = UnknownDType;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    // the names that numpy, ml_dtypes and StableHLO use
                    "bool" | "i1" => Ok(Self::Pred),
                    "int2" | "i2" => Ok(Self::S2),
                    "int4" | "i4" => Ok(Self::S4),
                    "int8" | "i8" => Ok(Self::S8),
                    "int16" | "i16" => Ok(Self::S16),
                    "int32" | "i32" => Ok(Self::S32),
                    "int64" | "i64" => Ok(Self::S64),
                    "uint2" | "ui2" => Ok(Self::U2),
                    "uint4" | "ui4" => Ok(Self::U4),
                    "uint8" | "ui8" => Ok(Self::U8),
                    "uint16" | "ui16" => Ok(Self::U16),
                    "uint32" | "ui32" => Ok(Self::U32),
                    "uint64" | "ui64" => Ok(Self::U64),
                    "float16" => Ok(Self::F16),
                    "float32" => Ok(Self::F32),
                    "float64" => Ok(Self::F64),
                    "bfloat16" => Ok(Self::Bf16),
                    "float8_e5m2" | "f8E5M2" => Ok(Self::F8E5M2),
                    "float8_e4m3" | "f8E4M3" => Ok(Self::F8E4M3),
                    "float8_e4m3fn" | "f8E4M3FN" => Ok(Self::F8E4M3Fn),
                    "float8_e4m3b11fnuz" | "f8E4M3B11FNUZ" => Ok(Self::F8E4M3B11Fnuz),
                    "float8_e3m4" | "f8E3M4" => Ok(Self::F8E3M4),
                    "float8_e5m2fnuz" | "f8E5M2FNUZ" => Ok(Self::F8E5M2Fnuz),
                    "float8_e4m3fnuz" | "f8E4M3FNUZ" => Ok(Self::F8E4M3Fnuz),
                    "float8_e8m0fnu" | "f8E8M0FNU" => Ok(Self::F8E8M0Fnu),
                    "float4_e2m1fn" | "f4E2M1FN" => Ok(Self::F4E2M1Fn),
                    "complex64" | "complex<f32>" => Ok(Self::C64),
                    "complex128" | "complex<f64>" => Ok(Self::C128),
                    other => Err(UnknownDType(other.chars().take(40).collect())),
                }
            }
        }
    };
}

// PJRT_Buffer_Type numbers: pjrt_c_api.h.
dtypes! {
    Pred "pred" 8 1 "Boolean, one byte.",
    S2 "s2" 2 24 "Signed, two bits.",
    S4 "s4" 4 21 "Signed, four bits.",
    S8 "s8" 8 2 "Signed, 8 bits.",
    S16 "s16" 16 3 "Signed, 16 bits.",
    S32 "s32" 32 4 "Signed, 32 bits.",
    S64 "s64" 64 5 "Signed, 64 bits.",
    U2 "u2" 2 25 "Unsigned, two bits.",
    U4 "u4" 4 22 "Unsigned, four bits.",
    U8 "u8" 8 6 "Unsigned, 8 bits.",
    U16 "u16" 16 7 "Unsigned, 16 bits.",
    U32 "u32" 32 8 "Unsigned, 32 bits.",
    U64 "u64" 64 9 "Unsigned, 64 bits.",
    F16 "f16" 16 10 "IEEE half precision.",
    F32 "f32" 32 11 "IEEE single precision.",
    F64 "f64" 64 12 "IEEE double precision.",
    Bf16 "bf16" 16 13 "Brain floating point.",
    C64 "c64" 64 14 "Two `f32`.",
    C128 "c128" 128 15 "Two `f64`.",
    F8E5M2 "f8e5m2" 8 16 "Eight bits, five of exponent; has infinities.",
    F8E4M3Fn "f8e4m3fn" 8 17 "Eight bits, four of exponent; finite, one NaN pattern.",
    F8E4M3B11Fnuz "f8e4m3b11fnuz" 8 18 "Eight bits, bias 11; finite, no negative zero.",
    F8E5M2Fnuz "f8e5m2fnuz" 8 19 "Eight bits, bias 16; finite, no negative zero.",
    F8E4M3Fnuz "f8e4m3fnuz" 8 20 "Eight bits, bias 8; finite, no negative zero.",
    F8E4M3 "f8e4m3" 8 26 "Eight bits, four of exponent, IEEE-like.",
    F8E3M4 "f8e3m4" 8 27 "Eight bits, three of exponent, IEEE-like.",
    F8E8M0Fnu "f8e8m0fnu" 8 28 "A power of two, no sign, no zero.",
    F4E2M1Fn "f4e2m1fn" 4 29 "Four bits, finite.",
}

/// A name that is not an element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an element type")]
pub struct UnknownDType(String);

impl DType {
    /// Bytes of one element in a host array. Types narrower than a byte take a whole byte each, in its low bits,
    /// as `ml_dtypes` and PJRT's unpacked host buffers hold them.
    pub fn host_bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// MLIR's name, as in StableHLO's text: `f32`, `i1`, `ui8`, `f8E4M3FN`.
    pub fn stablehlo_name(self) -> &'static str {
        match self {
            Self::Pred => "i1",
            Self::S2 => "i2",
            Self::S4 => "i4",
            Self::S8 => "i8",
            Self::S16 => "i16",
            Self::S32 => "i32",
            Self::S64 => "i64",
            Self::U2 => "ui2",
            Self::U4 => "ui4",
            Self::U8 => "ui8",
            Self::U16 => "ui16",
            Self::U32 => "ui32",
            Self::U64 => "ui64",
            Self::F8E5M2 => "f8E5M2",
            Self::F8E4M3 => "f8E4M3",
            Self::F8E4M3Fn => "f8E4M3FN",
            Self::F8E4M3B11Fnuz => "f8E4M3B11FNUZ",
            Self::F8E3M4 => "f8E3M4",
            Self::F8E5M2Fnuz => "f8E5M2FNUZ",
            Self::F8E4M3Fnuz => "f8E4M3FNUZ",
            Self::F8E8M0Fnu => "f8E8M0FNU",
            Self::F4E2M1Fn => "f4E2M1FN",
            Self::C64 => "complex<f32>",
            Self::C128 => "complex<f64>",
            Self::F16 | Self::F32 | Self::F64 | Self::Bf16 => self.name(),
        }
    }

    /// Whether elements are real floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16
                | Self::F32
                | Self::F64
                | Self::Bf16
                | Self::F8E5M2
                | Self::F8E4M3Fn
                | Self::F8E4M3B11Fnuz
                | Self::F8E5M2Fnuz
                | Self::F8E4M3Fnuz
                | Self::F8E4M3
                | Self::F8E3M4
                | Self::F8E8M0Fnu
                | Self::F4E2M1Fn
        )
    }

    /// Whether elements are real floating-point numbers of fewer bits than `f32`.
    pub fn is_narrow_float(self) -> bool {
        self.is_float() && self.bits() < 32
    }

    /// Whether elements are complex numbers.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128)
    }

    /// Whether elements may have a fraction; integers and `pred` do not.
    pub fn has_fractions(self) -> bool {
        self.is_float() || self.is_complex()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read() {
        for &dtype in DType::ALL {
            assert_eq!((dtype.name().parse(), dtype.stablehlo_name().parse()), (Ok(dtype), Ok(dtype)));
        }
    }
}
