//! The outputs that those of all candidates are compared with.

use crate::array::{ArraySpec, Finiteness, Reference};
use crate::timer::protocol::KeptOutput;

/// Outputs with more bytes than this in total are compared in the worker, without files, if the timer can.
pub(crate) const LARGE_OUTPUTS: u64 = 64 << 20;

/// The baseline's outputs.
pub(super) enum ExpectedOutputs {
    /// Outputs that this process holds.
    Here(Vec<Reference>),
    /// Outputs that the timer holds. It compares others with them.
    Kept(Vec<KeptOutput>),
}

impl ExpectedOutputs {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Here(reference) => reference.len(),
            Self::Kept(kept) => kept.len(),
        }
    }

    /// The number of elements of all outputs together.
    pub(super) fn elements(&self) -> u64 {
        let elements = (0..self.len()).filter_map(|index| self.get(index)?.0.elements());
        elements.fold(0, u64::saturating_add)
    }

    /// An output's spec and the finiteness of its elements.
    pub(super) fn get(&self, index: usize) -> Option<(&ArraySpec, Option<Finiteness>)> {
        match self {
            Self::Here(reference) => reference.get(index).map(|output| (output.spec(), output.finiteness())),
            Self::Kept(kept) => kept.get(index).map(|output| (&output.spec, output.finiteness)),
        }
    }

    /// The specs of all outputs.
    pub(super) fn specs(&self) -> impl Iterator<Item = &ArraySpec> {
        (0..self.len()).filter_map(|index| self.spec(index))
    }

    pub(super) fn spec(&self, index: usize) -> Option<&ArraySpec> {
        self.get(index).map(|(spec, _)| spec)
    }

    /// Root mean square of an output's finite elements; zero for integers.
    pub(super) fn rms(&self, index: usize) -> f64 {
        self.get(index).and_then(|(_, finiteness)| finiteness).map_or(0.0, |found| found.rms)
    }

    /// An output's bytes with their spec, if this process holds them.
    pub(super) fn bytes(&self, index: usize) -> Option<(&ArraySpec, &[u8])> {
        match self {
            Self::Here(reference) => reference.get(index).map(|output| (output.spec(), output.bytes())),
            Self::Kept(_) => None,
        }
    }
}
