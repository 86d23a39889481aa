//! Rejects candidates whose outputs differ from the baseline's.

use crate::array::{ArraySpec, Finiteness, Reference, Tolerance};
use crate::counted::counted;
use crate::failure::{Failure, FailureKind};
use crate::hlo::read_program;
use crate::io_hint::io_hint;
use crate::outside_file;
use crate::timer::events::EventKind;
use crate::timer::protocol::{ComparedOutput, one_line};
use crate::timer::replay::RecordedMethod;
use crate::timer::{OutputArray, OutputsAs, TakenOutputs, Timer, TimerExt};

use super::expected::{ExpectedOutputs, LARGE_OUTPUTS};
use super::measuring::Measuring;
use super::{OutputDifference, RaceError};

/// Outputs of this size mostly come from arguments that the operation is not made for.
const HUGE_RMS: f64 = 1e8;

/// Largest program that is read for the number of its results.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

impl Measuring<'_> {
    /// The baseline's outputs. All others are compared with them.
    pub(super) fn reference_outputs(&mut self) -> Result<ExpectedOutputs, RaceError> {
        let _reading = self.process.slice_of(self.referee.identity.baseline);
        let baseline = self.referee.identity.baseline;
        let taken = self.on_outputs(baseline, |timer| timer.outputs(baseline, OutputsAs::KeptAbove(LARGE_OUTPUTS)))?;
        let outputs = match taken.ok_or_else(|| self.baseline_failed())? {
            TakenOutputs::Kept(kept) => {
                let seen = kept.iter().enumerate();
                let seen = seen.filter_map(|(index, output)| Some((index, &output.spec, output.finiteness?))).collect();
                self.look_at(seen)?;
                return Ok(ExpectedOutputs::Kept(kept));
            }
            files => files.into_files().map_err(RaceError::Failed)?,
        };
        // the baseline's files fitted, so a candidate's fit too: none is blamed for a full disk
        let reference: Vec<Reference> = outputs
            .into_iter()
            .enumerate()
            .map(|(index, output)| {
                let tolerance = self.tolerance(index, &output.spec);
                output.read().map(|bytes| Reference::new(output.spec, bytes, tolerance))
            })
            .collect::<Result<_, _>>()
            .map_err(|error| {
                let message = format!("the baseline's outputs cannot be read: {error}{}", io_hint(&error));
                RaceError::Failed(Failure::new(FailureKind::Device, message))
            })?;
        let seen = reference.iter().enumerate();
        self.look_at(seen.filter_map(|(index, output)| Some((index, output.spec(), output.finiteness()?))).collect())?;
        Ok(ExpectedOutputs::Here(reference))
    }

    /// Drops candidates of a wave whose outputs are not the baseline's.
    pub(super) fn compare_outputs(&mut self, wave: &[usize], expected: &ExpectedOutputs) -> Result<(), RaceError> {
        let active = self.active();
        let nothing_to_compare = self.nothing_to_compare(expected);
        for &candidate in wave.iter().filter(|&&candidate| candidate != self.referee.identity.baseline) {
            if !active.contains(&candidate) {
                continue;
            }
            if let Some(why) = nothing_to_compare.as_ref().filter(|_| self.is_other_program(candidate)) {
                return Err(RaceError::Failed(Failure::new(FailureKind::NoOutputs, why.clone())));
            }
            self.process.check_cancelled()?;
            let _slice = self.process.slice_of(candidate);
            let found = match expected {
                ExpectedOutputs::Here(reference) => {
                    let outputs = self.on_outputs(candidate, |timer| timer.output_files(candidate))?;
                    outputs.map(|outputs| compared_here(&outputs, reference))
                }
                ExpectedOutputs::Kept(kept) => {
                    let kept = kept.iter().enumerate();
                    let tolerances: Vec<_> = kept.map(|(index, kept)| self.tolerance(index, &kept.spec)).collect();
                    let compare = OutputsAs::Compared(&tolerances);
                    let found =
                        self.on_outputs(candidate, |timer| timer.outputs(candidate, compare)?.into_compared())?;
                    found.map(|found| found.into_iter().map(Ok).collect())
                }
            };
            let Some(found) = found else { continue };
            let (found, wrong) = differences(&found, expected, &self.process.job.results);
            self.evidence.differences.insert(candidate, found);
            if let Some(wrong) = wrong {
                self.fail(candidate, Failure::new(FailureKind::WrongOutput, wrong))?;
            }
        }
        Ok(())
    }

    /// The tolerance for the elements of an output.
    fn tolerance(&self, index: usize, spec: &ArraySpec) -> Tolerance {
        let tolerance = Tolerance::for_dtype(spec.dtype);
        tolerance.absolute(tolerance.absolute + self.referee.terms.slack.get(index).copied().unwrap_or_default())
    }

    /// A candidate's outputs, or their comparison; `None` if it is dropped.
    fn on_outputs<T>(
        &mut self,
        candidate: usize,
        mut call: impl FnMut(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<Option<T>, RaceError> {
        let events = self.process.events;
        self.try_twice(candidate, |timer| {
            let outputs = call(timer);
            let failure = outputs.as_ref().err();
            events.tell(EventKind::Called { candidate, method: RecordedMethod::Outputs, failure });
            outputs
        })
    }

    /// Notes what makes the baseline's outputs weak evidence, and fails if they are no evidence.
    fn look_at(&mut self, seen: Vec<(usize, &ArraySpec, Finiteness)>) -> Result<(), RaceError> {
        if !self.referee.terms.needs_finite
            && self.compares_programs()
            && let Some((index, spec, found)) = seen.iter().find(|(.., found)| found.finite == 0)
        {
            let what = if found.nan == found.elements { "NaN alone" } else { "nothing finite" };
            let message = format!(
                "output {index} of the baseline, `{spec}`, holds {what}, so another program with the same output \
                 proves nothing: {}",
                self.better_inputs()
            );
            return Err(RaceError::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        if self.referee.terms.needs_finite
            && let Some(message) = seen.iter().find_map(|(index, spec, found)| refusal(*index, spec, found))
        {
            return Err(RaceError::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        let found: Vec<(usize, Finiteness)> = seen.iter().map(|(index, _, found)| (*index, *found)).collect();
        self.evidence.notes.extend(weaknesses(&found, self.better_inputs()));
        if !seen.is_empty() && seen.iter().all(|(.., found)| found.finite == found.elements && found.rms == 0.0) {
            self.evidence
                .notes
                .push("every output of the baseline is zero, like those of a program that does nothing".into());
        }
        Ok(())
    }

    /// How to give the arguments values inside the domain of what is measured.
    fn better_inputs(&self) -> &'static str {
        match self.referee.terms.wants_each_ratio() {
            // a whole program
            true => {
                "give real values with `--inputs DIR`, which `autotune_lowered.capture` writes, or plausible ones, \
                 such as `--fill ARGUMENT=ones`"
            }
            false => {
                "record the call with the values that it has in use (run it eagerly once, or with \
                 `capture_values=True`)"
            }
        }
    }

    /// Why outputs without a single element are no evidence, unless the recorded program has no results.
    fn nothing_to_compare(&self, expected: &ExpectedOutputs) -> Option<String> {
        if expected.elements() > 0 || self.process.timer.info().can.skip_outputs {
            return None;
        }
        let recorded = self
            .process
            .job
            .candidates
            .get(self.referee.identity.baseline)
            .and_then(|baseline| baseline.program.as_ref());
        // bytes that cannot be read say nothing
        let results = recorded.and_then(|recorded| {
            let bytes = outside_file::bytes(&recorded.path, MAX_PROGRAM_BYTES).ok()?;
            read_program(&bytes, "the baseline's program").ok()?.has_results()
        });
        let why = match results {
            Some(false) if expected.len() == 0 => return None,
            Some(false) => "its recorded program has no results",
            Some(true) => "its recorded program has results",
            None => "nothing recorded says that its program has no results",
        };
        let found = match expected.len() {
            0 => "the timer gives no outputs of the baseline".to_owned(),
            count => format!("{} of the baseline without an element", counted(count, "output")),
        };
        Some(format!(
            "{found}, and {why}: there is nothing to compare, so nothing is decided; a worker answers `outputs` with \
             every result of the program (docs/worker-protocol.md)"
        ))
    }

    /// Whether any candidate runs another program than the baseline. Copies of one program need no comparison.
    fn compares_programs(&self) -> bool {
        let others = self.active().into_iter().filter(|&candidate| candidate != self.referee.identity.baseline);
        others.into_iter().any(|other| self.is_other_program(other))
    }

    /// Whether a candidate runs another program than the baseline, or may.
    fn is_other_program(&self, candidate: usize) -> bool {
        let program = |candidate: usize| {
            let program = self.process.job.candidates.get(candidate).and_then(|candidate| candidate.program.as_ref());
            program.map(|file| file.program.semantic_digest)
        };
        let options = |candidate: usize| {
            let build = self.process.job.candidates.get(candidate).map(|candidate| &candidate.build);
            build.map(|build| (&build.options, &build.process))
        };
        let baseline = self.referee.identity.baseline;
        let own = program(candidate);
        own.is_none() || own != program(baseline) || options(candidate) != options(baseline)
    }
}

/// Why an output of a whole program's baseline prevents a decision, if it is not finite throughout.
fn refusal(index: usize, spec: &ArraySpec, found: &Finiteness) -> Option<String> {
    let others = found.elements.saturating_sub(found.finite);
    (others > 0).then(|| {
        format!(
            "output {index} of the baseline, `{spec}`, has {others} of {} elements that are NaN or infinite, so \
             nothing is decided: give the arguments values of a real run (`--inputs DIR`), or plausible ones (`--fill \
             ARGUMENT=uniform:0,1e-4`)",
            found.elements
        )
    })
}

/// Why outputs of the baseline seem unlike those of an operation in real use, one line for all of them.
fn weaknesses(found: &[(usize, Finiteness)], better: &str) -> Vec<String> {
    let is_broken = |found: &Finiteness| found.nan > 0 || found.finite < found.elements / 2;
    let broken: Vec<_> = found.iter().filter(|(_, found)| is_broken(found)).collect();
    let huge: Vec<_> = found.iter().filter(|(_, found)| !is_broken(found) && found.rms > HUGE_RMS).collect();
    let others = |of: &[_]| match of.len() {
        0 | 1 => String::new(),
        more => format!(", and {} alike", counted(more - 1, "other output")),
    };
    let broken_line = broken.first().map(|(index, Finiteness { elements, finite, .. })| {
        format!(
            "{finite} of the {elements} elements of the baseline's output {index} are finite{}; the rest is equal \
             only by being NaN or infinite in the same places: {better}",
            others(&broken)
        )
    });
    let huge_line = huge.first().map(|(index, Finiteness { rms, .. })| {
        format!(
            "the baseline's output {index} is huge, {rms:.1e} in the root mean square{}: perhaps the values are \
             outside the operation's domain; {better}",
            others(&huge)
        )
    });
    broken_line.into_iter().chain(huge_line).collect()
}

/// Maximum number of outputs in a message.
const OUTPUTS_SHOWN: usize = 6;
/// Maximum number of characters of an element in a message: an `f64` may have more than three hundred.
const ELEMENT_SHOWN: usize = 400;

/// Compares outputs with those that this process holds, one at a time; an error for each that cannot be read.
fn compared_here(outputs: &[OutputArray], reference: &[Reference]) -> Vec<Result<ComparedOutput, String>> {
    let compared = |(index, output): (usize, &OutputArray)| {
        let reference = reference.get(index).filter(|reference| *reference.spec() == output.spec);
        // an array of another spec is not read
        let Some(reference) = reference else { return Ok(ComparedOutput::of(output.spec.clone(), &[], None)) };
        let bytes = output.read().map_err(|error| format!("output {index} cannot be read: {error}"))?;
        Ok(ComparedOutput::of(output.spec.clone(), &bytes, Some(reference)))
    };
    outputs.iter().enumerate().map(compared).collect()
}

/// The differences of outputs from the baseline's, and one phrase on what is wrong if one is beyond the tolerance.
fn differences(
    outputs: &[Result<ComparedOutput, String>],
    expected: &ExpectedOutputs,
    names: &[String],
) -> (Vec<OutputDifference>, Option<String>) {
    if outputs.len() != expected.len() {
        return (Vec::new(), Some(format!("{} outputs, the baseline has {}", outputs.len(), expected.len())));
    }
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (index, output) in outputs.iter().enumerate() {
        // another number of names belongs to another form of the outputs
        let name = names.get(index).filter(|_| names.len() == outputs.len()).cloned();
        let Some((spec, finiteness)) = expected.get(index) else { continue };
        match output.as_ref().map_err(Clone::clone).and_then(|output| {
            let rms = finiteness.map(|of| of.rms).filter(|rms| *rms > 0.0);
            difference(index, name.unwrap_or_default(), output, (spec, rms))
        }) {
            Ok((difference, text)) => {
                wrong.extend(text);
                found.extend(Some(difference).filter(|one| one.differing > 0 || one.max_absolute > 0.0));
            }
            Err(text) => wrong.push(text),
        }
    }
    let more = wrong.len().saturating_sub(OUTPUTS_SHOWN);
    wrong.truncate(OUTPUTS_SHOWN);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    (found, (!wrong.is_empty()).then(|| wrong.join("; ")))
}

/// The difference of one output, with a phrase if it is beyond the tolerance; an error if it cannot be compared.
fn difference(
    index: usize,
    name: String,
    output: &ComparedOutput,
    (expected, rms): (&ArraySpec, Option<f64>),
) -> Result<(OutputDifference, Option<String>), String> {
    if output.spec != *expected {
        return Err(format!("output {index} is `{}`, the baseline's is `{expected}`", output.spec));
    }
    let difference = OutputDifference {
        output: index,
        name,
        elements: expected.elements().unwrap_or_default(),
        differing: output.mismatches,
        max_absolute: output.max_absolute,
        of_rms: rms.map(|rms| output.max_absolute / rms),
    };
    if output.mismatches == 0 {
        return Ok((difference, None));
    }
    let first = output.first.as_ref().map_or_else(String::new, |first| {
        let (own, kept) = (one_line(&first.own, ELEMENT_SHOWN), one_line(&first.kept, ELEMENT_SHOWN));
        format!(", first at element {}: {own}, the baseline's is {kept}", first.element)
    });
    // no finite difference exists if one of the two is not a number
    let most = match output.max_absolute {
        0.0 => String::new(),
        most => format!(" by up to {most:.3e}"),
    };
    let message = format!("{difference} differs from the baseline's in {} elements{most}{first}", output.mismatches);
    Ok((difference, Some(message)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::array::DType;
    use crate::timer::protocol::{ComparedOutputs, KeptOutput};

    /// The comparison of files, and that of a worker's answers over the wire.
    fn both_ways(
        spec: &ArraySpec,
        baseline: &[u8],
        own: &[u8],
    ) -> [(Vec<OutputDifference>, Option<String>, Option<Finiteness>); 2] {
        let folder = tempfile::tempdir().unwrap();
        let reference = || {
            let tolerance = Tolerance::for_dtype(spec.dtype);
            Reference::new(spec.clone(), baseline.to_vec(), tolerance)
        };
        let file = OutputArray::write(spec.clone(), own, folder.path()).unwrap();
        let here = ExpectedOutputs::Here(vec![reference()]);
        let ExpectedOutputs::Here(references) = &here else { unreachable!() };
        let by_files = differences(&compared_here(&[file], references), &here, &["loss".to_owned()]);
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
        let by_worker = differences(&found, &expected, &["loss".to_owned()]);
        let finiteness = |expected: &ExpectedOutputs| expected.get(0).unwrap().1;
        let (of_files, of_worker) = (finiteness(&here), finiteness(&expected));
        [(by_files.0, by_files.1, of_files), (by_worker.0, by_worker.1, of_worker)]
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
    fn many_outputs_that_prove_little_are_one_line_that_says_what_to_do() {
        let found = |nan: u64, rms: f64| -> Finiteness {
            let value = serde_json::json!({"elements": 192, "finite": 192 - nan, "nan": nan, "rms": rms});
            serde_json::from_value(value).unwrap()
        };
        let mut outputs = vec![(0, found(0, 1.0)), (1, found(80, 1.0)), (2, found(0, 1e9))];
        outputs.extend((3..26).map(|index| (index, found(80, 1.0))));
        let lines = weaknesses(&outputs, "give real values");
        let [broken, huge] = &lines[..] else { panic!("{lines:?}") };
        assert!(broken.contains("112 of the 192 elements of the baseline's output 1 are finite"), "{broken}");
        assert!(broken.contains("23 other outputs") && broken.ends_with(": give real values"), "{broken}");
        assert!(huge.contains("output 2 is huge, 1.0e9") && !huge.contains("other output"), "{huge}");
        assert!(weaknesses(&outputs[..1], "give real values").is_empty());
    }

    #[test]
    fn an_error_is_the_same_by_files_and_by_a_worker() {
        let f32s = |values: [f32; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let spec = ArraySpec::new(DType::F32, [3]);
        let [by_files, by_worker] = both_ways(&spec, &f32s([1.0, 2.0, 4.0]), &f32s([1.0, 2.5, f32::NAN]));
        assert_eq!(by_files, by_worker);
        let message = "output 0 `loss` differs from the baseline's in 2 elements by up to 5.000e-1, first at element \
                       1: 2.5, the baseline's is 2";
        assert_eq!((by_worker.1.as_deref(), by_worker.0[0].differing), (Some(message), 2));
        let within = both_ways(&spec, &f32s([1.0, 2.0, 4.0]), &f32s([1.0, 2.001, 4.0]));
        assert!(within.iter().all(|(found, wrong, _)| wrong.is_none() && found[0].differing == 0));
    }

    #[test]
    fn a_whole_program_is_refused_for_one_nan() {
        let spec = ArraySpec::new(DType::F32, [3]);
        let look = |values: [f32; 3]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let reference = Reference::new(spec.clone(), bytes, Tolerance::EXACT);
            refusal(2, &spec, &reference.finiteness().unwrap())
        };
        assert_eq!(look([0.0, 1.0, -1.0]), None);
        for value in [f32::NAN, f32::INFINITY] {
            let message = look([0.0, value, 1.0]).unwrap();
            assert!(
                message.contains("output 2 of the baseline, `f32[3]`, has 1 of 3") && message.contains("--fill"),
                "{message}"
            );
        }
    }
}
