//! Element type and dimensions together, spelled `f32[2,128]` as in HLO.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{DType, UnknownDType};

/// Element type and dimensions of one array; written `f32[2,128]`, a scalar `f32[]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArraySpec {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub dims: Vec<u64>,
}

/// A text that is not an array spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The element type is unknown.
    #[error(transparent)]
    DType(#[from] UnknownDType),
    /// Not of the form `dtype[d0,d1]`.
    #[error("`{0}` is not of the form `f32[2,128]`")]
    Form(String),
}

impl ArraySpec {
    /// A spec from its parts.
    pub fn new(dtype: DType, dims: impl Into<Vec<u64>>) -> Self {
        Self { dtype, dims: dims.into() }
    }

    /// Number of elements; `None` if it does not fit 64 bits.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
    }

    /// Bytes of the dense host array; `None` if they do not fit 64 bits.
    pub fn host_bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.host_bytes() as u64)
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (index, dim) in self.dims.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl FromStr for ArraySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || SpecError::Form(text.chars().take(80).collect());
        let (dtype, rest) = text.split_once('[').ok_or_else(form)?;
        let dims = rest.strip_suffix(']').ok_or_else(form)?;
        let dims = if dims.is_empty() {
            Vec::new()
        } else {
            dims.split(',').map(|dim| dim.trim().parse().map_err(|_| form())).collect::<Result<_, _>>()?
        };
        Ok(Self { dtype: dtype.parse()?, dims })
    }
}

impl Serialize for ArraySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ArraySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_round_trips() {
        for text in ["f32[2,128]", "pred[]", "bf16[0,3]", "s4[7]", "f8e4m3fn[1,1,1]"] {
            assert_eq!(text.parse::<ArraySpec>().unwrap().to_string(), text);
        }
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), *dtype);
            assert_eq!(DType::from_pjrt_type(dtype.pjrt_type()), Some(*dtype));
        }
        assert!("f32[2".parse::<ArraySpec>().is_err());
        assert!("f33[2]".parse::<ArraySpec>().is_err());
        let huge = ArraySpec::new(DType::F32, [u64::MAX, 2]);
        assert_eq!(huge.host_bytes(), None);
    }
}
