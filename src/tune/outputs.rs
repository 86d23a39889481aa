//! Candidates that compute something else are out.

use crate::array::{ArraySpec, Finiteness, Reference, Tolerance, element_text};
use crate::failure::{Failure, FailureKind};
use crate::remedy::remedy;
use crate::timer::OutputArray;
use crate::timer::events::Kind;
use crate::timer::replay::Method;

use super::OutputDifference;
use super::measure::{Ended, Measuring};

/// Outputs of this size are mostly those of arguments that the operation is not made for.
const HUGE_RMS: f64 = 1e8;

impl Measuring<'_> {
    /// The baseline's outputs, which all others are compared with.
    pub(super) fn reference_outputs(&mut self) -> Result<Vec<Reference>, Ended> {
        let _reading = self.slice_of(self.identity.baseline);
        let outputs = match self.outputs(self.identity.baseline)? {
            Some(outputs) => outputs,
            None => return Err(self.baseline_failed()),
        };
        // where the baseline's files had room a candidate's have it too: none is blamed for a full disk
        let reference: Vec<Reference> = outputs
            .into_iter()
            .map(|output| {
                let tolerance = Tolerance::for_dtype(output.spec.dtype);
                output.read().map(|bytes| Reference::new(output.spec, bytes, tolerance))
            })
            .collect::<Result<_, _>>()
            .map_err(|error| {
                let message = format!("the baseline's outputs cannot be read: {error}{}", remedy(&error));
                Ended::Failed(Failure::new(FailureKind::Device, message))
            })?;
        self.look_at(&reference)?;
        Ok(reference)
    }

    /// Takes candidates of a wave out whose outputs are not the baseline's.
    pub(super) fn compare_outputs(&mut self, wave: &[usize], reference: &[Reference]) -> Result<(), Ended> {
        let active = self.active();
        for &candidate in wave.iter().filter(|&&candidate| candidate != self.identity.baseline) {
            if !active.contains(&candidate) {
                continue;
            }
            self.check_cancelled()?;
            let _slice = self.slice_of(candidate);
            let Some(outputs) = self.outputs(candidate)? else { continue };
            let (found, wrong) = differences(&outputs, reference, &self.job.results);
            self.rounds.differences.insert(candidate, found);
            if let Some(wrong) = wrong {
                self.fail(candidate, Failure::new(FailureKind::WrongOutput, wrong))?;
            }
        }
        Ok(())
    }

    /// A candidate's outputs; `None` where it is out.
    fn outputs(&mut self, candidate: usize) -> Result<Option<Vec<OutputArray>>, Ended> {
        let events = self.events;
        self.try_twice(candidate, |timer| {
            let outputs = timer.outputs(candidate);
            let failure = outputs.as_ref().err();
            events.tell(Kind::Called { candidate, method: Method::Outputs, failure });
            outputs
        })
    }

    /// Notes what makes the baseline's outputs weak evidence, and ends where they are none.
    fn look_at(&mut self, reference: &[Reference]) -> Result<(), Ended> {
        let seen: Vec<(usize, &ArraySpec, Finiteness)> = reference
            .iter()
            .enumerate()
            .filter_map(|(index, output)| Some((index, output.spec(), output.finiteness()?)))
            .collect();
        if !self.needs_finite
            && self.compares_programs()
            && let Some((index, spec, found)) = seen.iter().find(|(.., found)| found.finite == 0)
        {
            let what = if found.nan == found.elements { "NaN alone" } else { "nothing finite" };
            let message = format!(
                "output {index} of the baseline, `{spec}`, holds {what}, and that another program gives the same proves nothing: \
                 record the call with the values that it has in use (run it eagerly once, or with `capture_values=True`)"
            );
            return Err(Ended::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        if self.needs_finite
            && let Some(message) = seen.iter().find_map(|(index, spec, found)| refusal(*index, spec, found))
        {
            return Err(Ended::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        self.rounds.notes.extend(seen.iter().filter_map(|(index, _, found)| weakness(*index, found)));
        if !seen.is_empty() && seen.iter().all(|(.., found)| found.finite == found.elements && found.rms == 0.0) {
            self.rounds
                .notes
                .push("every output of the baseline is zero, as those of a program that does nothing".into());
        }
        Ok(())
    }

    /// Whether any candidate runs another program than the baseline: copies of one program have nothing to prove.
    fn compares_programs(&self) -> bool {
        let program = |candidate: usize| {
            let program = self.job.candidates.get(candidate).and_then(|candidate| candidate.program.as_ref());
            program.map(|file| file.program.semantic_digest)
        };
        let options = |candidate: usize| self.job.candidates.get(candidate).map(|candidate| &candidate.build.options);
        let own = program(self.identity.baseline);
        let others = self.active().into_iter().filter(|&candidate| candidate != self.identity.baseline);
        let own_options = options(self.identity.baseline);
        others.into_iter().any(|other| {
            let same = program(other);
            same.is_none() || same != own || options(other) != own_options
        })
    }
}

/// Why nothing is decided on this output of a whole program's baseline, where it is not finite throughout.
fn refusal(index: usize, spec: &ArraySpec, found: &Finiteness) -> Option<String> {
    let others = found.elements.saturating_sub(found.finite);
    (others > 0).then(|| {
        format!(
            "output {index} of the baseline, `{spec}`, has {others} of {} elements that are NaN or infinite, so nothing is decided: \
             give the arguments values of a real run (`--inputs DIR`), or such as they may have (`--fill ARGUMENT=uniform:0,1e-4`)",
            found.elements
        )
    })
}

/// Why an output of the baseline is not what an operation gives in use, where it seems so.
fn weakness(index: usize, found: &Finiteness) -> Option<String> {
    let Finiteness { elements, finite, nan, rms } = *found;
    if nan > 0 || finite < elements / 2 {
        let of = format!("{finite} of the {elements} elements of the baseline's output {index} are finite");
        return Some(format!("{of}, and others are equal only by being NaN or infinite in the same places"));
    }
    (rms > HUGE_RMS).then(|| {
        format!(
            "the baseline's output {index} is huge, {rms:.1e} in the root mean square: perhaps the recorded values are not those \
             that the operation is made for"
        )
    })
}

/// Outputs that a message tells of.
const OUTPUTS_SHOWN: usize = 6;

/// How outputs differ from the baseline's, those that do, and in one phrase what is wrong with them where one is beyond the tolerance.
fn differences(
    outputs: &[OutputArray],
    reference: &[Reference],
    names: &[String],
) -> (Vec<OutputDifference>, Option<String>) {
    if outputs.len() != reference.len() {
        return (Vec::new(), Some(format!("{} outputs, the baseline has {}", outputs.len(), reference.len())));
    }
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (index, (output, reference)) in outputs.iter().zip(reference).enumerate() {
        // names of another number of outputs are those of another form
        let name = names.get(index).filter(|_| names.len() == outputs.len()).cloned();
        match difference(index, name.unwrap_or_default(), output, reference) {
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

/// How one output differs, with a phrase where that is beyond the tolerance; an error where it cannot be compared.
fn difference(
    index: usize,
    name: String,
    output: &OutputArray,
    reference: &Reference,
) -> Result<(OutputDifference, Option<String>), String> {
    let expected = reference.spec();
    if output.spec != *expected {
        return Err(format!("output {index} is `{}`, the baseline's is `{expected}`", output.spec));
    }
    let bytes = output.read().map_err(|error| format!("output {index} cannot be read: {error}"))?;
    let found = reference.compare(&bytes);
    let rms = reference.finiteness().map(|of| of.rms).filter(|rms| *rms > 0.0);
    let difference = OutputDifference {
        output: index,
        name,
        elements: expected.elements().unwrap_or_default(),
        differing: found.mismatches,
        max_absolute: found.max_absolute,
        of_rms: rms.map(|rms| found.max_absolute / rms),
    };
    if found.matches {
        return Ok((difference, None));
    }
    let text = |bytes: &[u8], at| element_text(&output.spec, bytes, at).unwrap_or_else(|| "nothing".to_owned());
    let first = found.first.map_or_else(String::new, |at| {
        format!(", first at element {at}: {}, the baseline's is {}", text(&bytes, at), text(reference.bytes(), at))
    });
    // nothing finite differs where one of the two is no number
    let most = match found.max_absolute {
        0.0 => String::new(),
        most => format!(" by up to {most:.3e}"),
    };
    let said = format!("{difference} differs from the baseline's in {} elements{most}{first}", found.mismatches);
    Ok((difference, Some(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;

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
            let said = look([0.0, value, 1.0]).unwrap();
            assert!(
                said.contains("output 2 of the baseline, `f32[3]`, has 1 of 3") && said.contains("--fill"),
                "{said}"
            );
        }
    }
}
