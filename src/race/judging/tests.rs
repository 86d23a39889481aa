//! The same judgement by files and by a worker's comparison, and what it says.

use proptest::prelude::*;

use super::*;
use crate::array::{DType, Finiteness, Reference};
use crate::race::outputs::compared_here;
use crate::timer::protocol::{ComparedOutputs, KeptOutput};

/// The comparison of files, and that of a worker's answers over the wire.
fn both_ways(spec: &ArraySpec, baseline: &[u8], own: &[u8]) -> [(Judged, Option<Finiteness>); 2] {
    let (bounds, names) = ([OutputBounds::of(spec.dtype)], ["loss".to_owned()]);
    let folder = tempfile::tempdir().unwrap();
    let reference = || {
        let tolerance = Tolerance::for_dtype(spec.dtype);
        Reference::new(spec.clone(), baseline.to_vec(), tolerance)
    };
    let file = OutputArray::write(spec.clone(), own, folder.path()).unwrap();
    let here = ExpectedOutputs::Here(vec![reference()]);
    let ExpectedOutputs::Here(references) = &here else { unreachable!() };
    let by_files = judged(&compared_here(&[file], references), &here, &bounds, &names, None);
    // the worker gets the tolerance later
    let kept = Reference::new(spec.clone(), baseline.to_vec(), Tolerance::EXACT);
    let reported = serde_json::to_string(&KeptOutput::of(&kept)).unwrap();
    let reported: Vec<KeptOutput> = vec![serde_json::from_str(&reported).unwrap()];
    let tolerance = serde_json::to_string(&Tolerance::for_dtype(reported[0].spec.dtype)).unwrap();
    let kept = kept.within(serde_json::from_str(&tolerance).unwrap());
    let answer = ComparedOutputs::new(vec![ComparedOutput::of(spec.clone(), own, Some(&kept))]);
    let answer: ComparedOutputs = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
    let found: Vec<_> = answer.outputs.into_iter().map(Ok).collect();
    let expected = ExpectedOutputs::Kept(reported);
    let by_worker = judged(&found, &expected, &bounds, &names, None);
    let finiteness = |expected: &ExpectedOutputs| expected.get(0).unwrap().1;
    let (of_files, of_worker) = (finiteness(&here), finiteness(&expected));
    [(by_files, of_files), (by_worker, of_worker)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random bits contain NaN, infinities and denormals. A changed byte is a small error or a large one.
    #[test]
    fn a_worker_finds_what_files_show(
        dtype in proptest::sample::select(DType::ALL),
        words in proptest::collection::vec(any::<u64>(), 1..200),
        changes in proptest::collection::vec(any::<(usize, u8)>(), 0..4),
        special in any::<bool>(),
    ) {
        let mut baseline: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let width = dtype.host_bytes();
        baseline.truncate(baseline.len() / width * width);
        let spec = ArraySpec::new(dtype, [(baseline.len() / width) as u64]);
        let mut own = baseline.clone();
        for (place, byte) in changes {
            let place = place % own.len().max(1);
            own.iter_mut().skip(place).take(1).for_each(|old| *old = byte);
        }
        if special {
            crate::array::plant(&spec, &mut own, crate::array::SpecialKind::Nan, 7);
            crate::array::plant(&spec, &mut baseline, crate::array::SpecialKind::Infinities, 9);
        }
        let [by_files, by_worker] = both_ways(&spec, &baseline, &own);
        prop_assert_eq!(by_files, by_worker);
    }
}

#[test]
fn an_error_is_the_same_by_files_and_by_a_worker() {
    let f32s = |values: [f32; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let spec = ArraySpec::new(DType::F32, [3]);
    let [by_files, by_worker] = both_ways(&spec, &f32s([1.0, 2.0, 4.0]), &f32s([1.0, 2.5, f32::NAN]));
    assert_eq!(by_files, by_worker);
    let wrong = by_worker.0.wrong.unwrap();
    let expected = "output 0 `loss` differs from the baseline's in 2 of 3 elements by up to 5.000e-1, most at element 2: \
                    NaN, the baseline's is 4; if it is right all the same, allow more with `--tolerance`";
    assert!(wrong.starts_with(expected), "{wrong}");
    assert_eq!((by_worker.0.by, by_worker.0.differences[0].differing), (None, 2));
    let within = both_ways(&spec, &f32s([1.0, 2.0, 4.0]), &f32s([1.0, 2.001, 4.0]));
    for (found, _) in within {
        assert_eq!((found.wrong, found.by, found.differences[0].differing), (None, Some(ComparedBy::Tolerance), 0));
    }
}
