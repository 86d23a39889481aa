//! Input arrays made from a recipe, the same bytes on every machine.

use std::path::PathBuf;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::draws::Draws;
use super::element::{Element, decode, finite_range, integer_range, push_float, push_floats, push_integer};
use super::{ArraySpec, DType};
use crate::digest::FieldHasher;

/// How an argument's values are made. Every kind is deterministic for a given seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
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
    /// A permutation of `0..n` along the last dimension, a different one for each row.
    Permutation,
    /// Non-decreasing along the last dimension from 0 to `total`, like cumulative sequence lengths.
    SortedCumulative {
        /// The last value of each row.
        total: i64,
    },
    /// Non-negative integers along the last dimension that sum to `total`, like group sizes.
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
    /// The values determine control flow and were unknown when the call was recorded: it cannot be run.
    ValuesUnknown,
}

/// A fill that cannot make values for its array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot fill `{spec}`: {reason}")]
#[non_exhaustive]
pub struct FillError {
    /// The array.
    pub spec: String,
    /// Why.
    pub reason: String,
}

impl Fill {
    /// Whether another seed gives other values.
    pub fn is_random(&self) -> bool {
        !matches!(self, Self::Constant { .. } | Self::File { .. } | Self::ValuesUnknown)
    }
}

/// Maximum size of an array to fill; a record that requests more is refused before anything is allocated.
pub const MAX_ARRAY_BYTES: u64 = 16 << 30;

/// Pairs of random words that are made at a time; a few megabytes of memory.
const LARGEST_PART: usize = 1 << 14;

/// The seed of one argument: the first eight bytes, little endian, of the [`FieldHasher`] digest `argument-seed` over
/// the name and the index (eight little-endian bytes). Every candidate of an invocation gets the same inputs.
pub fn argument_seed(name: &str, index: u64) -> u64 {
    let digest = FieldHasher::new("argument-seed").field(name.as_bytes()).field(&index.to_le_bytes()).finish();
    digest.as_bytes().iter().take(8).rev().fold(0, |seed, &byte| (seed << 8) | u64::from(byte))
}

/// The dense little-endian host bytes of an array.
///
/// The values depend only on `spec`, `fill` and `seed`, by IEEE arithmetic without the platform's mathematical
/// functions, so they are the same bytes on every machine and in every release; the derivation is in
/// `docs/registry.md`. Floats are rounded to nearest even and kept finite (a draw beyond the type's range becomes its
/// largest finite value); rounding to a narrow type may reach the excluded end of a uniform range.
///
/// # Errors
/// If the type cannot hold the fill's values, the array is larger than [`MAX_ARRAY_BYTES`], or the fill is
/// `Fill::File` or `Fill::ValuesUnknown`: the registry resolves the first and refuses the second.
pub fn generate(spec: &ArraySpec, fill: &Fill, seed: u64) -> Result<Vec<u8>, FillError> {
    let refuse = |reason: String| FillError { spec: spec.to_string(), reason };
    let size = spec.host_bytes().filter(|&size| size <= MAX_ARRAY_BYTES);
    let size = size.ok_or_else(|| refuse(format!("it is larger than {} GiB", MAX_ARRAY_BYTES >> 30)))?;
    let mut bytes = Vec::new();
    usize::try_from(size)
        .ok()
        .and_then(|size| bytes.try_reserve_exact(size).ok())
        .ok_or_else(|| refuse(format!("no memory for {size} bytes")))?;
    let row = spec.dims.last().copied().unwrap_or(1);
    let mut filling =
        Filling { dtype: spec.dtype, count: spec.elements().unwrap_or(0), row, draws: Draws::new(seed), bytes };
    filling.fill(fill).map_err(refuse)?;
    Ok(filling.bytes)
}

/// An array while it is filled.
struct Filling {
    dtype: DType,
    count: u64,
    /// Elements along the last dimension.
    row: u64,
    draws: Draws,
    bytes: Vec<u8>,
}

impl Filling {
    fn fill(&mut self, fill: &Fill) -> Result<(), String> {
        match fill {
            Fill::Normal { scale } => self.normal(*scale),
            Fill::Uniform { low, high } => self.uniform(*low, *high),
            Fill::Constant { value } => self.constant(*value),
            Fill::IntegerRange { low, high } => self.integers(*low, *high),
            Fill::Permutation => self.permutations(),
            Fill::SortedCumulative { total } => self.cumulative(*total),
            Fill::Partition { total } => self.partitions(*total),
            Fill::BooleanDensity { density } => self.booleans(*density),
            Fill::File { path, .. } => {
                Err(format!("its values are in `{}`: read them through the registry", path.display()))
            }
            Fill::ValuesUnknown => {
                Err("its values steer control flow and were not known when it was recorded".to_owned())
            }
        }
    }

    fn push(&mut self, value: i128) {
        push_integer_valued(self.dtype, value, &mut self.bytes);
    }

    fn normal(&mut self, scale: f64) -> Result<(), String> {
        if !(scale.is_finite() && scale >= 0.0) {
            return Err(format!("the scale `{scale}` is not a finite number from 0"));
        }
        if self.dtype == DType::F8E8M0Fnu {
            return Err("the type has no sign; `uniform` over a positive range fits it".to_owned());
        }
        self.reals(|draws, pairs, numbers| {
            draws.normals(pairs, numbers);
            numbers.iter_mut().for_each(|number| *number *= scale);
        })
    }

    fn uniform(&mut self, low: f64, high: f64) -> Result<(), String> {
        if !(low.is_finite() && high.is_finite() && low < high && (high - low).is_finite()) {
            return Err(format!("`{low}..{high}` is not a finite range"));
        }
        self.reals(|draws, pairs, numbers| {
            numbers.extend((0..2 * pairs).map(|_| low + (high - low) * draws.unit()));
        })
    }

    /// Fills with the numbers that `make` makes of so many pairs of words of the stream, two of a pair or none. So parts
    /// of the stream give the same numbers wherever it is cut, and are made side by side.
    fn reals(&mut self, make: impl Fn(&mut Draws, usize, &mut Vec<f64>) + Sync) -> Result<(), String> {
        let dtype = self.dtype;
        let Some((low, high)) = finite_range(dtype) else {
            let instead = if dtype == DType::Pred { "boolean-density" } else { "integer-range" };
            return Err(format!("the type holds no fractions; `{instead}` fits it"));
        };
        // complex elements hold two numbers
        let width = dtype.host_bytes() / if dtype.is_complex() { 2 } else { 1 };
        let size = usize::try_from(self.count).unwrap_or(usize::MAX).saturating_mul(dtype.host_bytes());
        // pairs of words in a part: the polar method rejects a fifth of them
        let pairs = (size / width).clamp(16, LARGEST_PART);
        let draws = &self.draws;
        let part = |index: usize| {
            let mut draws = draws.from(2 * (index * pairs) as u64);
            let mut numbers = Vec::with_capacity(2 * pairs);
            make(&mut draws, pairs, &mut numbers);
            let mut bytes = Vec::with_capacity(numbers.len() * width);
            push_floats(part_of(dtype), numbers.into_iter().map(|number| number.clamp(low, high)), &mut bytes);
            bytes
        };
        let mut next = 0;
        while self.bytes.len() < size {
            let left = (size - self.bytes.len()).div_ceil(pairs * width);
            let parts = next..next + left.min(2 * rayon::current_num_threads());
            next = parts.end;
            for bytes in parts.into_par_iter().map(part).collect::<Vec<_>>() {
                let left = size - self.bytes.len();
                self.bytes.extend_from_slice(bytes.get(..left).unwrap_or(&bytes));
            }
        }
        Ok(())
    }

    fn constant(&mut self, value: f64) -> Result<(), String> {
        let refused = || Err(format!("the type does not hold `{value}`"));
        let Some((low, high)) = integer_range(self.dtype) else {
            let (low, high) = finite_range(self.dtype).unwrap_or_default();
            if !(low..=high).contains(&value) {
                return refused();
            }
            (0..self.count).for_each(|_| push_real(self.dtype, value, 0.0, &mut self.bytes));
            return Ok(());
        };
        let whole = value as i128;
        if whole as f64 != value || !(low..=high).contains(&whole) {
            return refused();
        }
        (0..self.count).for_each(|_| self.push(whole));
        Ok(())
    }

    fn integers(&mut self, low: i64, high: i64) -> Result<(), String> {
        if low > high {
            return Err(format!("`{low}..={high}` is empty"));
        }
        check_holds(self.dtype, i128::from(low), i128::from(high))?;
        let span = high.wrapping_sub(low) as u64;
        for _ in 0..self.count {
            let above = self.draws.up_to(span);
            self.push(i128::from(low) + i128::from(above));
        }
        Ok(())
    }

    fn permutations(&mut self) -> Result<(), String> {
        check_holds(self.dtype, 0, i128::from(self.row) - 1)?;
        let mut order: Vec<u64> = Vec::new();
        for _ in 0..self.rows() {
            order.clear();
            order.extend(0..self.row);
            // Fisher and Yates, from the end
            for last in (1..order.len()).rev() {
                order.swap(last, self.draws.up_to(last as u64) as usize);
            }
            order.iter().for_each(|&value| self.push(i128::from(value)));
        }
        Ok(())
    }

    fn cumulative(&mut self, total: i64) -> Result<(), String> {
        let limit = check_total(self.dtype, total)?;
        for _ in 0..self.rows() {
            let mut cuts = self.draws.sorted_cuts(self.row.saturating_sub(2), limit);
            if self.row > 1 {
                cuts.insert(0, 0);
            }
            cuts.push(limit);
            cuts.iter().for_each(|&value| self.push(i128::from(value)));
        }
        Ok(())
    }

    fn partitions(&mut self, total: i64) -> Result<(), String> {
        let limit = check_total(self.dtype, total)?;
        for _ in 0..self.rows() {
            let mut cuts = self.draws.sorted_cuts(self.row - 1, limit);
            cuts.push(limit);
            let mut before = 0;
            for cut in cuts {
                self.push(i128::from(cut - before));
                before = cut;
            }
        }
        Ok(())
    }

    fn booleans(&mut self, density: f64) -> Result<(), String> {
        if !(0.0..=1.0).contains(&density) {
            return Err(format!("the density `{density}` is not in 0..=1"));
        }
        check_holds(self.dtype, 0, 1)?;
        for _ in 0..self.count {
            let is_set = self.draws.unit() < density;
            self.push(i128::from(is_set));
        }
        Ok(())
    }

    /// Rows along the last dimension; none in an array without elements.
    fn rows(&self) -> u64 {
        self.count.checked_div(self.row).unwrap_or(0)
    }
}

fn check_total(dtype: DType, total: i64) -> Result<u64, String> {
    let limit = u64::try_from(total).map_err(|_| format!("the total `{total}` is negative"))?;
    check_holds(dtype, 0, i128::from(total))?;
    Ok(limit)
}

/// Whether a type holds every integer of a range, exactly.
fn check_holds(dtype: DType, low: i128, high: i128) -> Result<(), String> {
    let (least, most) = match integer_range(dtype) {
        Some(range) => range,
        None => {
            let whole = [low, high].iter().all(|&value| holds_exactly(dtype, value));
            let dense = holds_exactly(dtype, low.abs().max(high.abs()) - 1);
            return if whole && dense {
                Ok(())
            } else {
                Err(format!("the type does not hold `{low}..={high}` exactly"))
            };
        }
    };
    if low < least || high > most {
        return Err(format!("`{low}..={high}` is not inside the type's `{least}..={most}`"));
    }
    Ok(())
}

fn holds_exactly(dtype: DType, value: i128) -> bool {
    let mut bytes = Vec::new();
    push_real(dtype, value as f64, 0.0, &mut bytes);
    match decode(dtype, &bytes) {
        Some(Element::Real(back) | Element::Complex(back, _)) => back == value as f64 && back as i128 == value,
        _ => false,
    }
}

fn push_integer_valued(dtype: DType, value: i128, bytes: &mut Vec<u8>) {
    if integer_range(dtype).is_some() {
        push_integer(dtype, value, bytes);
    } else {
        push_real(dtype, value as f64, 0.0, bytes);
    }
}

fn push_real(dtype: DType, real: f64, imaginary: f64, bytes: &mut Vec<u8>) {
    push_float(part_of(dtype), real, bytes);
    if dtype.is_complex() {
        push_float(part_of(dtype), imaginary, bytes);
    }
}

/// The type of a complex type's parts; any other type itself.
fn part_of(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        other => other,
    }
}
