//! Input arrays made from a recipe, the same bytes on every machine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ArraySpec;

/// How an argument's values are made. Every kind is deterministic for a given seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fill {
    /// Independent normal values, mean zero, standard deviation `scale`.
    Normal {
        /// Standard deviation.
        scale: f64,
    },
    /// Independent uniform values in `[low, high)`.
    Uniform {
        /// Lower end, included.
        low: f64,
        /// Upper end, excluded.
        high: f64,
    },
    /// Every element the same.
    Constant {
        /// The value; 0 and 1 for `pred`.
        value: f64,
    },
    /// Independent integers, uniform in `low..=high`.
    IntegerRange {
        /// Smallest value.
        low: i64,
        /// Largest value.
        high: i64,
    },
    /// A permutation of `0..n` along the last dimension, another one for each row.
    Permutation,
    /// Non-decreasing along the last dimension from 0 to `total`, as cumulative sequence lengths are.
    SortedCumulative {
        /// The last value of each row.
        total: i64,
    },
    /// Non-negative integers along the last dimension that sum to `total`, as group sizes do.
    Partition {
        /// Sum of each row.
        total: i64,
    },
    /// Independent booleans, true with probability `density`.
    BooleanDensity {
        /// Probability of true.
        density: f64,
    },
    /// Dense little-endian bytes of a file inside the registry's folder (`arrays/`), by content digest.
    File {
        /// Path relative to the registry's folder; absolute paths and `..` are refused.
        path: PathBuf,
        /// SHA-256 of the file.
        digest: crate::digest::Digest,
    },
    /// The values steer control flow and were not known when the call was recorded: it cannot be run.
    ValuesUnknown,
}

/// A fill that cannot make values for its array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot fill `{spec}`: {reason}")]
pub struct FillError {
    /// The array.
    pub spec: String,
    /// Why.
    pub reason: String,
}

/// The dense little-endian host bytes of an array. `Fill::File` and `Fill::ValuesUnknown` are errors here: the
/// registry resolves the one and refuses the other.
pub fn generate(spec: &ArraySpec, fill: &Fill, seed: u64) -> Result<Vec<u8>, FillError> {
    let _ = (fill, seed);
    Err(FillError { spec: spec.to_string(), reason: "not built yet".into() })
}
