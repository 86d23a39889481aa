//! When outputs that are not bitwise equal are equally good results of one computation.
//!
//! Two sound programs round differently, so that a fixed limit on the difference of their elements rejects right ones
//! where elements are many: the largest of a million rounding errors is five times the usual one. Three rules follow
//! each other.
//!
//! 1. Every element is within its type's tolerance, and the root mean square of the differences is what the rounding of
//!    the results explains. A sum in a too narrow type may pass the first half; it fails the second.
//! 2. The same program in `f64` shows the error of both. A candidate is as good as the baseline if its error is of the
//!    same size: bounds on rounding errors hold for every order of a sum (N. Higham, Accuracy and Stability of
//!    Numerical Algorithms, chapter 4).
//! 3. Without such a program, a few elements may be beyond the tolerance if they are spread, since an error in a
//!    program hits rows or tiles.

use serde::{Deserialize, Serialize};

use super::{ArrayError, DType, Tolerance};

/// Part of the type's rounding that the root mean square of differences may be, over that of the baseline: two
/// independent roundings of each element give 0.29.
const ROUNDED: f64 = 0.5;
/// The same in one row or tile, which has other elements than the whole.
const ROUNDED_IN_TILE: f64 = 1.5 * ROUNDED;
/// Factor of both without a program in `f64`, which would tell rounded intermediate results from errors. The bound is
/// then 1.5 roundings. A sum of 1,024 terms that is rounded after each one is off by 4.5, because the errors add up as
/// in a random walk, to `0.29 √(n/4)` roundings.
const WITHOUT_F64: f64 = 3.0;
/// The square root of the number of terms that a type can sum within its tolerance, and the largest factor of the
/// tolerance for longer sums.
const UNGROWN: f64 = 3.0;
const MOST_GROWTH: f64 = 10.0;
/// No sum is so long that the tolerance of its type is larger than this part.
const MOST_RELATIVE: f64 = 0.25;
/// The part of that factor by which the root mean square of the differences grows: it explains more roundings to begin
/// with.
const RMS_OF_GROWTH: f64 = 0.5;
/// The error of a candidate may be these multiples of the baseline's: in the root mean square, at the worst element,
/// and in the worst row or tile.
const TIMES_RMS: f64 = 2.0;
const TIMES_LARGEST: f64 = 4.0;
const TIMES_TILE: f64 = 3.0;
/// No element may be off by more tolerances, whatever the baseline's error.
const MOST_TOLERANCES: f64 = 4.0;
/// Two right results are off by at most twice as much, and a little more because each has its own tolerance.
const HOPELESS: f64 = 2.5;
/// One element of so many may be beyond the tolerance.
const ELEMENTS_PER_OUTLIER: u64 = 10_000;

/// The rule by which a candidate's outputs were accepted, from the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ComparedBy {
    /// Every bit is the baseline's.
    Bitwise,
    /// Every element is within the tolerance.
    Tolerance,
    /// The error against the same program in `f64` is of the size of the baseline's.
    F64,
    /// A few elements, spread over the array, are beyond the tolerance.
    Outliers,
}

/// Why an output is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// Elements are beyond the tolerance: too many, too far, or all in one place.
    Beyond,
    /// The differences are small, but larger in the root mean square than the rounding of the results explains.
    Rms,
    /// The error against the same program in `f64` is far larger than the baseline's.
    F64,
}

/// How far one output may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutputBounds {
    dtype: DType,
    tolerance: Tolerance,
    /// Whether the tolerance decides alone, as one that the user set.
    is_alone: bool,
    /// Multiple of the tolerance that long sums in a narrow type may be off.
    growth: f64,
}

impl OutputBounds {
    /// Those of an element type. Integers and booleans are exact.
    pub fn of(dtype: DType) -> Self {
        Self { dtype, tolerance: Tolerance::for_dtype(dtype), is_alone: false, growth: 1.0 }
    }

    /// The same with another relative tolerance, for types with fractions.
    #[must_use]
    pub fn given(self, relative: f64) -> Self {
        let tolerance = Tolerance { absolute: 0.0, relative, of_rms: relative };
        if self.dtype.has_fractions() { Self { tolerance, is_alone: true, ..self } } else { self }
    }

    /// The same if the tolerance decides alone, because the caller has a reference of its own.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// The same if the baseline itself may be off so much, from run to run.
    #[must_use]
    pub fn slack(self, absolute: f64) -> Self {
        Self { tolerance: self.tolerance.absolute(self.tolerance.absolute + absolute), ..self }
    }

    /// What each element may be off.
    pub fn tolerance(&self) -> Tolerance {
        self.tolerance
    }

    /// The same if the baseline sums so many terms in the element type itself, whose roundings add up as in a random
    /// walk. A tolerance that decides alone stays as it is.
    #[must_use]
    pub fn summing(self, terms: u64) -> Self {
        if self.is_alone {
            return self;
        }
        let most = (MOST_RELATIVE / self.tolerance.relative.max(f64::MIN_POSITIVE)).clamp(1.0, MOST_GROWTH);
        let growth = ((terms as f64).sqrt() / UNGROWN).clamp(1.0, most);
        Self { growth, tolerance: self.tolerance.times(growth / self.growth), ..self }
    }

    /// The rule by which an output is right without further work, if one holds.
    pub fn settled(&self, found: &OutputDeviation) -> Option<ComparedBy> {
        if found.mismatches > 0 {
            return None;
        }
        if found.of_tolerance == 0.0 {
            return Some(ComparedBy::Bitwise);
        }
        (self.is_alone || self.is_rounding(found, 1.0)).then_some(ComparedBy::Tolerance)
    }

    /// Whether the program in `f64` may decide about an output that is not settled.
    pub fn asks_f64(&self) -> bool {
        !self.is_alone && self.dtype.has_fractions() && self.dtype.in_f64() != self.dtype
    }

    /// Whether an output is wrong whatever the program in `f64` says: it is further off than the baseline and a right
    /// candidate can be together.
    pub fn is_hopeless(&self, found: &OutputDeviation) -> bool {
        found.mismatches > 0 && (!self.asks_f64() || found.of_tolerance > HOPELESS * MOST_TOLERANCES)
    }

    /// Whether an output is right, given the errors of the candidate's and the baseline's against the program in `f64`,
    /// in this order, if that was run.
    ///
    /// # Errors
    /// Why it is wrong.
    pub fn judge(
        &self,
        found: &OutputDeviation,
        errors: Option<&(ArrayError, ArrayError)>,
    ) -> Result<ComparedBy, Disagreement> {
        if let Some(by) = self.settled(found) {
            return Ok(by);
        }
        match errors.filter(|(_, baseline)| self.asks_f64() && self.trusts(baseline)) {
            Some((own, baseline)) if self.is_as_good(own, baseline) => Ok(ComparedBy::F64),
            Some(_) => Err(Disagreement::F64),
            None => self.judge_alone(found),
        }
    }

    /// The same without a program in `f64`.
    fn judge_alone(&self, found: &OutputDeviation) -> Result<ComparedBy, Disagreement> {
        let are_few = found.mismatches <= found.elements / ELEMENTS_PER_OUTLIER;
        if found.mismatches > 0
            && (self.is_alone || !are_few || found.is_clustered || found.of_tolerance > MOST_TOLERANCES)
        {
            return Err(Disagreement::Beyond);
        }
        match (self.is_rounding(found, WITHOUT_F64 * (RMS_OF_GROWTH * self.growth).max(1.0)), found.mismatches) {
            (false, _) => Err(Disagreement::Rms),
            (true, 0) => Ok(ComparedBy::Tolerance),
            (true, _) => Ok(ComparedBy::Outliers),
        }
    }

    /// Whether so many times the rounding of the results explains the differences, of the whole and of each part.
    fn is_rounding(&self, found: &OutputDeviation, times: f64) -> bool {
        let Some(rounding) = self.dtype.rounding() else { return true };
        let explained = times * ROUNDED * rounding * found.baseline_rms + self.tolerance.absolute;
        found.rms <= explained && found.of_tile <= times * ROUNDED_IN_TILE * self.rounding()
    }

    /// The type's rounding in units of the tolerance.
    fn rounding(&self) -> f64 {
        let rounding = self.dtype.rounding().unwrap_or_default();
        if self.tolerance.relative > 0.0 { rounding / self.tolerance.relative } else { 0.0 }
    }

    /// Whether the program in `f64` computes what the baseline does. Sorting, a search for the largest elements and
    /// random bits give other results for the least difference.
    pub fn trusts(&self, baseline: &ArrayError) -> bool {
        baseline.of_tolerance <= MOST_TOLERANCES
            && baseline.of_tile <= 1.0
            && baseline.rms.is_none_or(|rms| rms <= self.tolerance.relative)
    }

    /// Whether an error is of the size of the baseline's, or at most a rounding.
    fn is_as_good(&self, own: &ArrayError, baseline: &ArrayError) -> bool {
        let rounding = self.rounding();
        let largest = (TIMES_LARGEST * baseline.of_tolerance).max(rounding).min(MOST_TOLERANCES);
        let tile = (TIMES_TILE * baseline.of_tile).max(ROUNDED_IN_TILE * rounding);
        let least = ROUNDED * self.dtype.rounding().unwrap_or_default();
        let is_small = match (own.rms, baseline.rms) {
            (Some(own), Some(baseline)) => own <= (TIMES_RMS * baseline).max(least),
            // all of the reference is zero
            _ => own.max_absolute <= TIMES_LARGEST * baseline.max_absolute,
        };
        is_small && own.of_tolerance <= largest && own.of_tile <= tile
    }
}

/// How one output differs from the baseline's, as far as the rules need it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutputDeviation {
    /// Its elements.
    pub elements: u64,
    /// Those beyond the tolerance.
    pub mismatches: u64,
    /// The largest difference over what the tolerance allows there.
    pub of_tolerance: f64,
    /// Root mean square of the differences.
    pub rms: f64,
    /// The largest root mean square of a row or tile, over what the tolerance allows.
    pub of_tile: f64,
    /// Whether more of the elements beyond the tolerance lie together than chance gives.
    pub is_clustered: bool,
    /// Root mean square of the baseline's finite elements.
    pub baseline_rms: f64,
}

#[cfg(test)]
mod tests;
