//! Whether two outputs are equal within the precision of the element type.

use super::element::{Element, for_each_pair};
use super::finiteness::{Finiteness, finite_magnitude};
use super::tiles::Tiles;
use super::{ArraySpec, DType, Tolerance};

/// Number of elements that are skipped at once if their bytes are equal.
const BLOCK: usize = 1024;

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ArrayComparison {
    /// Whether every element is within the tolerance. NaN equals NaN, an infinity the same infinity.
    pub matches: bool,
    /// Elements beyond the tolerance.
    pub mismatches: u64,
    /// Largest absolute difference of finite elements.
    pub max_absolute: f64,
    /// Index of the first element beyond the tolerance, row major.
    pub first: Option<u64>,
    /// The element whose difference is the largest part of what the tolerance allows there; `None` if none differs.
    pub worst: Option<WorstElement>,
    /// Root mean square of the differences of finite elements, over all elements.
    pub rms: f64,
    /// The largest root mean square of the differences of a row or tile, in units of what the tolerance allows at each
    /// element.
    pub of_tile: f64,
    /// Whether more of the elements beyond the tolerance lie in one row of the last axis, or in one tile of 8 × 128,
    /// than chance gives.
    pub is_clustered: bool,
}

/// An element that differs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct WorstElement {
    /// Its index, row major.
    pub element: u64,
    /// Its difference over what the tolerance allows there; [`f64::MAX`] if nothing is allowed or only one of the two
    /// is finite.
    pub of_tolerance: f64,
}

/// A dense host array to compare others with; everything independent of them is computed once.
#[derive(Debug, Clone)]
pub struct Reference {
    spec: ArraySpec,
    bytes: Vec<u8>,
    found: Option<Finiteness>,
    tolerance: Tolerance,
}

impl Reference {
    /// Analyses the array. Its bytes may have any length; if that is not the spec's, nothing matches.
    pub fn new(spec: ArraySpec, bytes: Vec<u8>, tolerance: Tolerance) -> Self {
        let found = spec.dtype.has_fractions().then(|| Finiteness::of(spec.dtype, &bytes));
        Self { spec, bytes, found, tolerance }.within(tolerance)
    }

    /// The same with another tolerance; the array is analysed again only if necessary.
    #[must_use]
    pub fn within(mut self, tolerance: Tolerance) -> Self {
        if tolerance.of_rms != 0.0 && self.found.is_none() {
            self.found = Some(Finiteness::of(self.spec.dtype, &self.bytes));
        }
        Self { tolerance, ..self }
    }

    /// Its element type and shape.
    pub fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The finiteness of its elements; `None` for an empty array, and for a type that has only finite values.
    pub fn finiteness(&self) -> Option<Finiteness> {
        self.found.filter(|found| self.spec.dtype.has_fractions() && found.elements > 0)
    }

    /// Compares a dense host array of the same spec; a wrong byte count is a mismatch of every element.
    ///
    /// A NaN or an infinity equals only the same: a candidate with NaN where the reference has a number does not match,
    /// at any tolerance.
    pub fn compare(&self, ours: &[u8]) -> ArrayComparison {
        let whole = |bytes: &[u8]| self.spec.host_bytes() == Some(bytes.len() as u64);
        if !whole(ours) || !whole(&self.bytes) {
            return ArrayComparison {
                matches: false,
                mismatches: self.spec.elements().unwrap_or(u64::MAX),
                max_absolute: 0.0,
                first: Some(0),
                worst: Some(WorstElement { element: 0, of_tolerance: f64::MAX }),
                rms: 0.0,
                of_tile: f64::MAX,
                is_clustered: true,
            };
        }
        let mut comparing = Comparing::new(&self.spec, self.tolerance, self.found.map_or(0.0, |found| found.rms));
        comparing.block(ours, &self.bytes);
        comparing.finish()
    }
}

/// A comparison that continues over blocks of two arrays, from the first elements to the last. Where the blocks are cut
/// changes nothing.
#[derive(Debug, Clone)]
pub struct Comparing {
    dtype: DType,
    /// Tolerance that no element changes.
    slack: f64,
    relative: f64,
    /// Elements seen so far.
    elements: u64,
    mismatches: u64,
    max_absolute: f64,
    first: Option<u64>,
    worst: Option<WorstElement>,
    /// Whether some element is finite in only one of the two.
    is_unlike: bool,
    /// The unit of the differences whose squares are summed: squares of `f64` elements may overflow.
    unit: f64,
    squares: f64,
    tiles: Tiles,
}

impl Comparing {
    /// Nothing is seen yet. `rms` is the root mean square of the finite elements of the whole reference.
    pub fn new(spec: &ArraySpec, tolerance: Tolerance, rms: f64) -> Self {
        let Tolerance { absolute, relative, of_rms } = tolerance;
        Self {
            dtype: spec.dtype,
            slack: absolute + of_rms * rms,
            relative,
            elements: 0,
            mismatches: 0,
            max_absolute: 0.0,
            first: None,
            worst: None,
            is_unlike: false,
            unit: if rms > 0.0 && rms.is_finite() { rms } else { 1.0 },
            squares: 0.0,
            tiles: Tiles::new(&spec.dims),
        }
    }

    /// Compares the next elements of both, of which there are equally many.
    pub fn block(&mut self, ours: &[u8], reference: &[u8]) {
        let (dtype, start) = (self.dtype, self.elements);
        let block = BLOCK * dtype.host_bytes();
        for (start, (ours, reference)) in (start..).step_by(BLOCK).zip(ours.chunks(block).zip(reference.chunks(block)))
        {
            // bitwise equal arrays differ nowhere
            if ours == reference {
                continue;
            }
            let mut index = start;
            for_each_pair(dtype, ours, reference, |a, b| {
                self.pair(index, a, b);
                index += 1;
            });
        }
        self.pass(ours.len().min(reference.len()));
    }

    fn pair(&mut self, index: u64, a: Element, b: Element) {
        let difference = difference(a, b);
        if difference == 0.0 {
            return;
        }
        if difference.is_finite() {
            self.max_absolute = self.max_absolute.max(difference);
            self.squares += (difference / self.unit).powi(2);
        } else {
            self.is_unlike = true;
        }
        let of_tolerance = of_tolerance(difference, self.slack + self.relative * magnitude(a).min(magnitude(b)));
        self.tiles.add(index, of_tolerance);
        if self.worst.is_none_or(|worst| of_tolerance > worst.of_tolerance) {
            self.worst = Some(WorstElement { element: index, of_tolerance });
        }
        if of_tolerance > 1.0 {
            self.mismatches += 1;
            self.first.get_or_insert(index);
        }
    }

    /// Passes over so many bytes that are the same in both.
    pub fn pass(&mut self, bytes: usize) {
        self.elements = self.elements.saturating_add((bytes / self.dtype.host_bytes()) as u64);
    }

    /// Elements seen so far.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The first element beyond the tolerance so far.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// The element whose difference is the largest part of what is allowed so far.
    pub fn worst(&self) -> Option<u64> {
        self.worst.map(|worst| worst.element)
    }

    /// Whether some element so far is finite in only one of the two, or is another infinity.
    pub(super) fn is_unlike(&self) -> bool {
        self.is_unlike
    }

    /// What was found.
    pub fn finish(self) -> ArrayComparison {
        let mean = self.squares / self.elements.max(1) as f64;
        let spread = self.tiles.finish(self.elements);
        ArrayComparison {
            matches: self.mismatches == 0,
            mismatches: self.mismatches,
            max_absolute: self.max_absolute,
            first: self.first,
            worst: self.worst,
            // JSON has no infinity
            rms: (self.unit * mean.sqrt()).min(f64::MAX),
            of_tile: spread.rms,
            is_clustered: spread.is_clustered(self.mismatches),
        }
    }
}

/// A difference over what is allowed, greater than one if and only if it is not within. JSON has no infinity for what
/// allows nothing, and no NaN for what cannot be subtracted.
pub(super) fn of_tolerance(difference: f64, allowed: f64) -> f64 {
    let parts = difference / allowed;
    if difference <= allowed {
        parts.min(1.0)
    } else if parts.is_finite() {
        parts.max(1.0_f64.next_up())
    } else {
        f64::MAX
    }
}

/// `|a - b|`; zero for two NaNs or the same infinity, NaN (beyond every tolerance) if only one is finite.
pub(super) fn difference(a: Element, b: Element) -> f64 {
    let real = |a: f64, b: f64| {
        if a == b || (a.is_nan() && b.is_nan()) {
            0.0
        } else if a.is_finite() && b.is_finite() {
            (a - b).abs()
        } else {
            f64::NAN
        }
    };
    match (a, b) {
        (Element::Real(a), Element::Real(b)) => real(a, b),
        (Element::Integer(a), Element::Integer(b)) => (a - b).unsigned_abs() as f64,
        (Element::Complex(ar, ai), Element::Complex(br, bi)) => {
            let (re, im) = (real(ar, br), real(ai, bi));
            // hypot would make infinity of a NaN beside an infinity
            if re.is_nan() || im.is_nan() { f64::NAN } else { re.hypot(im) }
        }
        _ => f64::NAN,
    }
}

/// `|b|` as far as it is finite, so that an infinite reference allows nothing.
pub(super) fn magnitude(b: Element) -> f64 {
    finite_magnitude(b).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Counting;
    use crate::array::element::decode;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn compare(dtype: DType, ours: &[u8], reference: &[u8]) -> ArrayComparison {
        let spec = ArraySpec::new(dtype, [(ours.len() / dtype.host_bytes()) as u64]);
        Reference::new(spec, reference.to_vec(), Tolerance::for_dtype(dtype)).compare(ours)
    }

    #[test]
    fn another_order_of_summation_matches_and_an_error_does_not() {
        // near zero the element's own size allows nothing; the array's does
        let reference = f32s(&[100.0, -50.0, 1e-6, 25.0]);
        assert!(compare(DType::F32, &f32s(&[100.001, -50.001, -1e-5, 25.0]), &reference).matches);
        let wrong = compare(DType::F32, &f32s(&[100.0, -50.0, 1e-6, 26.0]), &reference);
        assert_eq!((wrong.matches, wrong.mismatches, wrong.first), (false, 1, Some(3)));
        assert_eq!(wrong.max_absolute, 1.0);
    }

    #[test]
    fn what_is_not_finite_equals_only_its_like() {
        let reference = [1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        assert!(compare(DType::F32, &f32s(&reference), &f32s(&reference)).matches);
        for (index, value) in [(0, f32::NAN), (0, f32::INFINITY), (1, 1.0), (2, f32::NEG_INFINITY), (2, 3e38)] {
            let mut ours = reference;
            ours[index] = value;
            let found = compare(DType::F32, &f32s(&ours), &f32s(&reference));
            assert_eq!((found.matches, found.first), (false, Some(index as u64)), "{value}");
            let loose = Tolerance { absolute: f64::INFINITY, relative: 1e9, of_rms: 0.0 };
            let spec = ArraySpec::new(DType::F32, [4]);
            assert!(!Reference::new(spec, f32s(&reference), loose).compare(&f32s(&ours)).matches, "{value}");
        }
        assert!(!compare(DType::C64, &f32s(&[1.0, f32::NAN]), &f32s(&[1.0, 0.0])).matches);
    }

    #[test]
    fn an_output_of_one_value_matches_none_of_several() {
        // 1, 2, 3 and -4 in each type, as far as it holds them
        for (dtype, reference) in [
            (DType::F32, f32s(&[1.0, 2.0, 3.0, -4.0])),
            (DType::Bf16, vec![0x80, 0x3f, 0x00, 0x40, 0x40, 0x40, 0x80, 0xc0]),
            (DType::F16, vec![0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 0x00, 0xc4]),
            (DType::F8E4M3Fn, vec![0x38, 0x40, 0x44, 0xc8]),
            (DType::F8E5M2, vec![0x3c, 0x40, 0x42, 0xc4]),
            (DType::F4E2M1Fn, vec![0x2, 0x4, 0x5, 0xe]),
            (DType::F8E8M0Fnu, vec![0x7f, 0x80, 0x81, 0x82]),
        ] {
            let width = dtype.host_bytes();
            let zero = vec![0; reference.len()];
            assert!(!compare(dtype, &zero, &reference).matches, "{dtype}: zero");
            for element in reference.chunks(width) {
                let ours = element.repeat(reference.len() / width);
                assert!(!compare(dtype, &ours, &reference).matches, "{dtype}: {element:?}");
            }
        }
    }

    #[test]
    fn integers_and_booleans_are_exact() {
        assert!(!compare(DType::S32, &1_000_001_i32.to_le_bytes(), &1_000_000_i32.to_le_bytes()).matches);
        let far = compare(DType::S64, &i64::MIN.to_le_bytes(), &i64::MAX.to_le_bytes());
        assert_eq!(far.max_absolute, 2_f64.powi(64));
        assert!(compare(DType::Pred, &[1, 0], &[255, 0]).matches, "any set byte is true");
        assert!(!compare(DType::Pred, &[1, 0], &[1, 1]).matches);
        assert!(compare(DType::S4, &[0xff], &[0x0f]).matches, "the upper bits are not the element's");
    }

    #[test]
    fn a_step_of_a_narrow_type_matches_and_three_do_not() {
        // 0x38 is 1.0 in e4m3fn, each step 1/8
        assert!(compare(DType::F8E4M3Fn, &[0x39; 4], &[0x38; 4]).matches);
        assert!(!compare(DType::F8E4M3Fn, &[0x3b; 4], &[0x38; 4]).matches);
        assert!(!compare(DType::F8E4M3Fn, &[0x7f; 4], &[0x38; 4]).matches, "0x7f is NaN");
    }

    #[test]
    fn a_wrong_byte_count_is_a_mismatch_of_everything() {
        let spec = ArraySpec::new(DType::F32, [3]);
        let found = Reference::new(spec, vec![0; 12], Tolerance::for_dtype(DType::F32)).compare(&[0; 8]);
        assert_eq!((found.matches, found.mismatches, found.first), (false, 3, Some(0)));
        let none = Reference::new(ArraySpec::new(DType::F32, [0]), Vec::new(), Tolerance::EXACT).compare(&[]);
        assert!(none.matches);
    }

    /// What [`Reference::compare`] finds, element by element.
    fn one_by_one(dtype: DType, ours: &[u8], reference: &[u8], tolerance: Tolerance) -> ArrayComparison {
        let elements = |bytes: &[u8]| -> Vec<Element> {
            bytes.chunks_exact(dtype.host_bytes()).map(|bytes| decode(dtype, bytes).unwrap()).collect()
        };
        let (ours, reference) = (elements(ours), elements(reference));
        let sizes: Vec<f64> = reference.iter().filter_map(|&element| finite_magnitude(element)).collect();
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let sum = sizes.iter().fold(0.0, |sum, size| sum + (size / largest).powi(2));
        let rms = if largest == 0.0 { 0.0 } else { largest * (sum / sizes.len() as f64).sqrt() };
        let slack = tolerance.absolute + tolerance.of_rms * rms;
        let off: Vec<f64> = ours.iter().zip(&reference).map(|(&a, &b)| difference(a, b)).collect();
        let beyond: Vec<usize> = (0..off.len())
            .filter(|&at| {
                let size = magnitude(ours[at]).min(magnitude(reference[at]));
                off[at] != 0.0 && (off[at].is_nan() || off[at] > slack + tolerance.relative * size)
            })
            .collect();
        let finite = || off.iter().copied().filter(|off| off.is_finite());
        let unit = if rms > 0.0 && rms.is_finite() { rms } else { 1.0 };
        let squares = finite().fold(0.0, |sum, off| sum + (off / unit).powi(2));
        let of_tolerance = |at: usize| {
            let size = magnitude(ours[at]).min(magnitude(reference[at]));
            of_tolerance(off[at], slack + tolerance.relative * size)
        };
        let worst = (0..off.len())
            .filter(|&at| off[at] != 0.0)
            .rev()
            .max_by(|&a, &b| of_tolerance(a).total_cmp(&of_tolerance(b)));
        let mut tiles = Tiles::new(&[off.len() as u64]);
        (0..off.len()).filter(|&at| off[at] != 0.0).for_each(|at| tiles.add(at as u64, of_tolerance(at)));
        let spread = tiles.finish(off.len() as u64);
        ArrayComparison {
            matches: beyond.is_empty(),
            mismatches: beyond.len() as u64,
            max_absolute: finite().fold(0.0, f64::max),
            first: beyond.first().map(|&at| at as u64),
            worst: worst.map(|at| WorstElement { element: at as u64, of_tolerance: of_tolerance(at) }),
            rms: (unit * (squares / off.len().max(1) as f64).sqrt()).min(f64::MAX),
            of_tile: spread.rms,
            is_clustered: spread.is_clustered(beyond.len() as u64),
        }
    }

    /// The same, but the sums of squares may be rounded otherwise.
    fn is_same(found: &ArrayComparison, expected: &ArrayComparison) -> bool {
        let is_near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-9 * b.abs();
        let of_worst = |of: &ArrayComparison| of.worst.map_or(0.0, |worst| worst.of_tolerance);
        let (rms, of_tile, worst) = (expected.rms, expected.of_tile, expected.worst);
        is_near(found.rms, rms)
            && is_near(found.of_tile, of_tile)
            && is_near(of_worst(found), of_worst(expected))
            && ArrayComparison { rms, of_tile, worst, ..found.clone() } == *expected
    }

    proptest::proptest! {
        #[test]
        fn arrays_compare_as_their_elements_do(
            dtype in proptest::sample::select(DType::ALL),
            words in proptest::collection::vec(proptest::prelude::any::<u64>(), 1..300),
            changes in proptest::collection::vec(proptest::prelude::any::<(usize, u8)>(), 0..4),
            repeats in 1_usize..40,
            (absolute, relative, of_rms) in (0_usize..4, 0_usize..4, 0_usize..4),
            steps in proptest::prelude::any::<bool>(),
        ) {
            // random bits, including special values of each type
            let special = [0, u64::MAX, 1 << 63, 0x7ff0 << 48, 0x7f80_0000_ff80_0000, 0x7fc0_8000_7c00_3f80];
            let word = |word: &u64| special.get((word % 16) as usize).copied().unwrap_or(*word).to_le_bytes();
            let mut reference = words.iter().flat_map(word).collect::<Vec<u8>>().repeat(repeats);
            reference.truncate(reference.len() / 16 * 16);
            let mut ours = reference.clone();
            if steps {
                ours.iter_mut().step_by(dtype.host_bytes()).for_each(|byte| *byte ^= 1);
            }
            for (at, byte) in changes {
                let at = at % ours.len().max(1);
                ours.iter_mut().skip(at).take(1).for_each(|ours| *ours = byte);
            }
            let part = |index: usize| [0.0, 1e-3, 0.5, f64::MAX][index];
            let tolerance = Tolerance { absolute: part(absolute), relative: part(relative), of_rms: part(of_rms) };
            let spec = ArraySpec::new(dtype, [(reference.len() / dtype.host_bytes()) as u64]);
            let expected = one_by_one(dtype, &ours, &reference, tolerance);
            let found = Reference::new(spec, reference, tolerance).compare(&ours);
            proptest::prop_assert!(is_same(&found, &expected), "{found:?} {expected:?}");
        }

        #[test]
        fn blocks_compare_as_the_whole_does(
            dtype in proptest::sample::select(DType::ALL),
            words in proptest::collection::vec(proptest::prelude::any::<u64>(), 1..300),
            changes in proptest::collection::vec(proptest::prelude::any::<(usize, u8)>(), 0..6),
            lengths in proptest::collection::vec(1_usize..3000, 1..40),
            (absolute, relative, of_rms) in (0_usize..3, 0_usize..3, 0_usize..3),
        ) {
            // NaN and infinities of one type or another among random bits, as many bytes as they happen to be
            let special = [0, u64::MAX, 0x7ff0 << 48, 0x7f80_0000_ff80_0000, 0x7fc0_8000_7c00_3f80];
            let word = |word: &u64| special.get((word % 16) as usize).copied().unwrap_or(*word).to_le_bytes();
            let mut reference = words.iter().flat_map(word).collect::<Vec<u8>>().repeat(7);
            reference.truncate((reference.len() - 5) / 16 * 16);
            let mut ours = reference.clone();
            for (at, byte) in changes {
                let at = at % ours.len().max(1);
                ours.iter_mut().skip(at).take(1).for_each(|ours| *ours = byte);
            }
            let part = |index: usize| [0.0, 1e-3, 0.5][index];
            let tolerance = Tolerance { absolute: part(absolute), relative: part(relative), of_rms: part(of_rms) };
            let spec = ArraySpec::new(dtype, [(reference.len() / dtype.host_bytes()) as u64]);
            let whole = Reference::new(spec.clone(), reference.clone(), tolerance);
            let rms = Finiteness::of(dtype, &reference);
            let mut comparing = Comparing::new(&spec, tolerance, rms.rms);
            let mut counting = Counting::new(dtype);
            let (mut own_left, mut left) = (&ours[..], &reference[..]);
            for length in lengths.into_iter().chain([usize::MAX / 16]) {
                let length = (length * dtype.host_bytes()).min(left.len());
                let (own, rest) = own_left.split_at(length);
                let (block, rest_of_reference) = left.split_at(length);
                if own == block { comparing.pass(length) } else { comparing.block(own, block) }
                counting.block(block);
                (own_left, left) = (rest, rest_of_reference);
            }
            proptest::prop_assert_eq!(comparing.elements() as usize, ours.len() / dtype.host_bytes());
            let found = comparing.finish();
            let expected = one_by_one(dtype, &ours, &reference, tolerance);
            proptest::prop_assert!(is_same(&found, &expected), "{found:?} {expected:?}");
            proptest::prop_assert!(is_same(&found, &whole.compare(&ours)));
            proptest::prop_assert_eq!(counting.finish(), rms);
        }
    }
}
