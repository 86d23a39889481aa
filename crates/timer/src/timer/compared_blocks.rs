//! Compares an output with the kept one block by block, so that the host holds at most one block of each.

use super::protocol::{ComparedOutput, DifferingElement};
use crate::array::{ArraySpec, Comparing, Tolerance, other_class_in};

/// The findings so far. They do not depend on the block boundaries.
pub(super) struct ComparedBlocks {
    spec: ArraySpec,
    comparing: Comparing,
    first: Option<DifferingElement>,
    worst: Option<DifferingElement>,
    other_class: u64,
}

impl ComparedBlocks {
    /// Starts a comparison. `rms` is the root mean square of the kept array's finite elements.
    pub(super) fn new(spec: ArraySpec, tolerance: Tolerance, rms: f64) -> Self {
        let comparing = Comparing::new(&spec, tolerance, rms);
        Self { spec, comparing, first: None, worst: None, other_class: 0 }
    }

    /// Compares the next elements of both arrays; the numbers are equal.
    pub(super) fn block(&mut self, own: &[u8], kept: &[u8]) {
        let start = self.comparing.elements();
        self.comparing.block(own, kept);
        let at = |element: u64| DifferingElement::at(element, element.saturating_sub(start), &self.spec, (own, kept));
        if self.first.is_none() {
            self.first = self.comparing.first().map(at);
        }
        let worst = self.comparing.worst().filter(|worst| *worst >= start);
        if let Some(worst) = worst {
            self.worst = Some(at(worst));
        }
        self.other_class = self.other_class.saturating_add(other_class_in(self.spec.dtype, own, kept));
    }

    /// Skips bytes that are the same in both.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.comparing.pass(bytes);
    }

    /// The result.
    pub(super) fn finish(self) -> ComparedOutput {
        let found = self.comparing.finish();
        let worst = self.worst.filter(|_| !found.matches);
        ComparedOutput::found(self.spec, &found, (self.first, worst), self.other_class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Reference;

    /// The result for 11 elements equals that of the whole array, for all block sizes.
    #[test]
    fn blocks_show_what_the_whole_array_does() {
        let spec: ArraySpec = "f32[11]".parse().unwrap();
        let bytes = |values: [f32; 11]| values.map(f32::to_le_bytes).concat();
        let kept = bytes([1.0, 2.0, f32::NAN, 4.0, f32::INFINITY, 6.0, 7.0, 1e-40, 9.0, 10.0, 11.0]);
        let own = bytes([1.0, 2.0, f32::NAN, 4.001, f32::INFINITY, 6.0, f32::NAN, 0.0, 9.0, 10.0, 12.0]);
        let tolerance = Tolerance::for_dtype(spec.dtype);
        let kept_whole = Reference::new(spec.clone(), kept.clone(), tolerance);
        let rms = kept_whole.finiteness().unwrap().rms;
        for length in 1..=11 {
            let mut blocks = ComparedBlocks::new(spec.clone(), tolerance, rms);
            for (own, kept) in own.chunks(4 * length).zip(kept.chunks(4 * length)) {
                if own == kept {
                    blocks.pass(own.len());
                } else {
                    blocks.block(own, kept);
                }
            }
            let found = blocks.finish();
            assert_eq!(found, ComparedOutput::of(spec.clone(), &own, Some(&kept_whole)), "blocks of {length}");
            let first = found.first.unwrap();
            assert_eq!((first.element, first.own.as_str(), first.kept.as_str()), (6, "NaN", "7"));
            // the NaN and the twelve are mismatches; the NaN and the denormal are of another class
            assert_eq!((found.mismatches, found.max_absolute, found.other_class), (2, 1.0, 2));
        }
    }
}
