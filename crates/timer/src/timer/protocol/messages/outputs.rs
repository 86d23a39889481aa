//! The answers about outputs: as files, kept in the worker, or compared there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::array::{ArrayComparison, ArraySpec, Finiteness, OutputDeviation, Reference, element_text, other_class};
use crate::digest::Digest;
use crate::timer::job::is_zero;

/// The answer to `outputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputsAnswer {
    /// The arrays, in the program's order.
    pub outputs: Vec<OutputRef>,
}

impl OutputsAnswer {
    /// The outputs of a program.
    pub fn new(outputs: Vec<OutputRef>) -> Self {
        Self { outputs }
    }
}

/// One output array on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRef {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// File of dense little-endian bytes, in the folder of the request.
    pub path: PathBuf,
}

/// The answer to `keep-outputs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptOutputs {
    /// The kept outputs, in the program's order; absent if nothing is kept, because they are not larger than `above`,
    /// or because there are more than [`MAX_KEPT_OUTPUTS`](crate::timer::protocol::MAX_KEPT_OUTPUTS) arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<KeptOutput>>,
}

impl KeptOutputs {
    /// The kept outputs of a program.
    pub fn new(outputs: Option<Vec<KeptOutput>>) -> Self {
        Self { outputs }
    }
}

/// An output that a worker keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptOutput {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// SHA-256 of its dense little-endian bytes.
    pub digest: Digest,
    /// The finiteness of its elements; absent if there are none, and for a type that has only finite values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finiteness: Option<Finiteness>,
}

impl KeptOutput {
    /// The report on an array.
    pub fn of(reference: &Reference) -> Self {
        let digest = Digest::of(reference.bytes());
        Self { spec: reference.spec().clone(), digest, finiteness: reference.finiteness() }
    }

    /// The same for an array that was read block by block.
    pub(in crate::timer) fn looked_at(spec: ArraySpec, digest: Digest, found: Finiteness) -> Self {
        let is_counted = spec.dtype.has_fractions() && found.elements > 0;
        Self { spec, digest, finiteness: is_counted.then_some(found) }
    }
}

/// The answer to `compare-outputs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutputs {
    /// The comparison of each output with the kept one, in the program's order.
    pub outputs: Vec<ComparedOutput>,
}

impl ComparedOutputs {
    /// The result of a comparison.
    pub fn new(outputs: Vec<ComparedOutput>) -> Self {
        Self { outputs }
    }
}

/// The comparison of an output with the kept one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutput {
    /// Its own element type and dimensions; if they differ, nothing was compared.
    pub spec: ArraySpec,
    /// Elements beyond the tolerance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mismatches: u64,
    /// Largest absolute difference of finite elements.
    #[serde(default, skip_serializing_if = "is_zero_real")]
    pub max_absolute: f64,
    /// The first element beyond the tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<DifferingElement>,
    /// The element that is furthest beyond the tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<DifferingElement>,
    /// The largest difference over what the tolerance allows at its element.
    #[serde(default, skip_serializing_if = "is_zero_real")]
    pub of_tolerance: f64,
    /// Root mean square of the differences of finite elements, over all elements.
    #[serde(default, skip_serializing_if = "is_zero_real")]
    pub rms: f64,
    /// The largest root mean square of the differences of a row of the last axis or a tile of 8 × 128, over what the
    /// tolerance allows at each element.
    #[serde(default, skip_serializing_if = "is_zero_real")]
    pub of_tile: f64,
    /// Whether more of the elements beyond the tolerance lie in one row or tile than chance gives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clustered: bool,
    /// Elements of another class: NaN, an infinity by its sign, a denormal, another number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_class: u64,
}

impl ComparedOutput {
    /// An output with its spec alone: either its bytes equal the kept ones, or its spec differs.
    pub(in crate::timer) fn spec_only(spec: ArraySpec) -> Self {
        Self {
            spec,
            mismatches: 0,
            max_absolute: 0.0,
            first: None,
            worst: None,
            of_tolerance: 0.0,
            rms: 0.0,
            of_tile: 0.0,
            clustered: false,
            other_class: 0,
        }
    }

    /// Compares a dense host array with a kept one; without one, or with one of another spec, only the spec is
    /// reported.
    pub fn of(spec: ArraySpec, bytes: &[u8], kept: Option<&Reference>) -> Self {
        let Some(kept) = kept.filter(|kept| *kept.spec() == spec && kept.bytes() != bytes) else {
            return Self::spec_only(spec);
        };
        let found = kept.compare(bytes);
        let at = |element: u64| DifferingElement::at(element, element, kept.spec(), (bytes, kept.bytes()));
        let first = found.first.map(at);
        let worst = found.worst.filter(|_| !found.matches).map(|worst| at(worst.element));
        let other_class = other_class(kept.spec(), bytes, kept.bytes());
        Self::found(spec, &found, (first, worst), other_class)
    }

    /// The report on a comparison, with the first element beyond the tolerance and the worst.
    pub(in crate::timer) fn found(
        spec: ArraySpec,
        found: &ArrayComparison,
        (first, worst): (Option<DifferingElement>, Option<DifferingElement>),
        other_class: u64,
    ) -> Self {
        Self {
            spec,
            mismatches: found.mismatches,
            max_absolute: found.max_absolute,
            first,
            worst,
            of_tolerance: found.worst.map_or(0.0, |worst| worst.of_tolerance),
            rms: found.rms,
            of_tile: found.of_tile,
            clustered: found.is_clustered,
            other_class,
        }
    }

    /// How it differs from the baseline's, whose finite elements have this root mean square.
    pub fn deviation(&self, baseline_rms: f64) -> OutputDeviation {
        let elements = self.spec.elements().unwrap_or_default();
        // a worker that counts mismatches alone does not say how far they are off
        let is_unknown = self.mismatches > 0 && self.of_tolerance <= 1.0;
        let differs = if self.max_absolute > 0.0 { f64::MIN_POSITIVE } else { 0.0 };
        OutputDeviation {
            elements,
            mismatches: self.mismatches,
            of_tolerance: if is_unknown { f64::MAX } else { self.of_tolerance.max(differs) },
            rms: self.rms,
            of_tile: self.of_tile,
            is_clustered: self.clustered,
            baseline_rms,
        }
    }
}

/// An element that differs between two arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DifferingElement {
    /// The element, row major.
    pub element: u64,
    /// Its value, as text.
    pub own: String,
    /// The kept one's value, as text.
    pub kept: String,
}

impl DifferingElement {
    /// An element that is `at` this place in parts of the two arrays, its own and the kept one's.
    pub(in crate::timer) fn at(element: u64, at: u64, spec: &ArraySpec, (own, kept): (&[u8], &[u8])) -> Self {
        let text = |bytes| element_text(spec, bytes, at).unwrap_or_else(|| "nothing".to_owned());
        Self { element, own: text(own), kept: text(kept) }
    }
}

// serde passes a reference to the field
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_real(value: &f64) -> bool {
    *value == 0.0
}
