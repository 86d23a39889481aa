//! How sets that change arithmetic treat NaN, infinities and denormals: the same programs run on inputs that contain
//! some.

use std::fs;
use std::path::Path;

use super::race::VariantRaces;
use super::variant::OptionVariant;
use crate::array::{SpecialKind, Tolerance, other_class, plant};
use crate::counted::listed;
use crate::failure::{Failure, FailureKind};
use crate::io_hint::io_hint;
use crate::race::{LARGE_OUTPUTS, OutputDifference, RaceError, SpecialValues};
use crate::timer::events::Slice;
use crate::timer::protocol::{ComparedOutput, KeptOutput};
use crate::timer::{InputArray, Job, OutputArray, OutputsAs, TakenOutputs, TimerExt};

/// The places of the planted values follow from this seed and the argument's number.
const SEED: u64 = 0x7370_6563;

/// Runs the base and the variants on inputs with planted values of each kind, and compares the outputs by class.
/// Reports what cannot be run for each variant. The timer has no job afterwards.
pub(super) fn special_values(
    races: &mut VariantRaces<'_>,
    base: &OptionVariant,
    variants: &[OptionVariant],
) -> Result<Vec<Vec<SpecialValues>>, RaceError> {
    let mut found: Vec<Vec<SpecialValues>> = variants.iter().map(|_| Vec::new()).collect();
    let all: Vec<OptionVariant> = std::iter::once(base).chain(variants).cloned().collect();
    for values in SpecialKind::ALL {
        let _slice = races.runner.events.open(Slice::Step("NaN, infinities and denormals"));
        let folder =
            tempfile::tempdir_in(races.scratch).map_err(|error| RaceError::Failed(of_device("a folder", &error)))?;
        let Some(inputs) = planted(&races.inputs, values, folder.path()).map_err(RaceError::Failed)? else { continue };
        let job = Job { inputs, ..races.job(&all) };
        races.runner.begin(&job)?;
        let expected = expected(races);
        for (candidate, found) in (1..).zip(&mut found) {
            let compared = match &expected {
                Ok(BaseOutputs::Files(expected)) => {
                    let ours = races.runner.run_once(candidate, |timer| timer.output_files(candidate));
                    ours.and_then(|ours| compare(&ours, expected, &races.results))
                }
                Ok(BaseOutputs::Kept(expected)) => {
                    let tolerances = vec![Tolerance::EXACT; expected.len()];
                    let compare = OutputsAs::Compared(&tolerances);
                    let ours = races.runner.run_once(candidate, |timer| timer.outputs(candidate, compare));
                    ours.and_then(TakenOutputs::into_compared)
                        .and_then(|ours| compared(&ours, expected, &races.results))
                }
                // run even so: otherwise a program that breaks the worker would affect the next one
                Err(failure) => {
                    let ran = races.runner.run_once(candidate, |timer| timer.output_files(candidate));
                    ran.and_then(|_| Err(failure.clone()))
                }
            };
            let (outputs, failure) = compared.map_or_else(|failure| (Vec::new(), Some(failure)), |found| (found, None));
            found.push(SpecialValues { values, outputs, failure });
        }
        races.runner.timer.end();
    }
    Ok(found)
}

pub(super) fn of_device(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(FailureKind::Device, format!("{what} cannot be made for other inputs: {error}{}", io_hint(error)))
}

/// The inputs with planted values; `None` if none of them can hold any.
fn planted(inputs: &[InputArray], values: SpecialKind, folder: &Path) -> Result<Option<Vec<InputArray>>, Failure> {
    let mut count = 0;
    let mut plant_in = |(index, input): (usize, &InputArray)| {
        let mut bytes = fs::read(&input.path)?;
        let seed = SEED.wrapping_add(index as u64);
        let changed = plant(&input.spec, &mut bytes, values, seed);
        if changed == 0 {
            return Ok(input.clone());
        }
        count += changed;
        let path = folder.join(format!("{index}.bin"));
        fs::write(&path, bytes)?;
        Ok(InputArray { path, ..input.clone() })
    };
    let planted: std::io::Result<Vec<InputArray>> = inputs.iter().enumerate().map(&mut plant_in).collect();
    let planted = planted.map_err(|error| of_device("files", &error))?;
    Ok((count > 0).then_some(planted))
}

/// The base's outputs.
enum BaseOutputs {
    Files(Vec<OutputArray>),
    /// Kept by the timer, because they are large.
    Kept(Vec<KeptOutput>),
}

fn expected(races: &mut VariantRaces<'_>) -> Result<BaseOutputs, Failure> {
    match races.runner.run_once(0, |timer| timer.outputs(0, OutputsAs::KeptAbove(LARGE_OUTPUTS)))? {
        TakenOutputs::Kept(kept) => Ok(BaseOutputs::Kept(kept)),
        files => files.into_files().map(BaseOutputs::Files),
    }
}

fn unlike() -> Failure {
    Failure::new(FailureKind::WrongOutput, "other outputs than the default's")
}

/// The outputs with elements of another class, counted by the timer.
fn compared(
    ours: &[ComparedOutput],
    expected: &[KeptOutput],
    names: &[String],
) -> Result<Vec<OutputDifference>, Failure> {
    if ours.iter().map(|output| &output.spec).ne(expected.iter().map(|output| &output.spec)) {
        return Err(unlike());
    }
    let differing = ours.iter().enumerate().filter(|(_, output)| output.other_class > 0);
    let differences = differing.map(|(number, output)| {
        let name = names.get(number).cloned().unwrap_or_default();
        OutputDifference::of_class(number, name, &output.spec, output.other_class)
    });
    Ok(differences.collect())
}

/// The outputs with elements of another class.
fn compare(ours: &[OutputArray], expected: &[OutputArray], names: &[String]) -> Result<Vec<OutputDifference>, Failure> {
    if ours.len() != expected.len() {
        return Err(unlike());
    }
    let read = |output: &OutputArray| output.read().map_err(|error| of_device("outputs", &error));
    let mut found = Vec::new();
    for (output, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        if ours.spec != expected.spec {
            return Err(unlike());
        }
        let differing = other_class(&ours.spec, &read(ours)?, &read(expected)?);
        if differing > 0 {
            let name = names.get(output).cloned().unwrap_or_default();
            found.push(OutputDifference::of_class(output, name, &ours.spec, differing));
        }
    }
    Ok(found)
}

/// One line for each kind of value that a set treats differently from the base; none if all is the same.
pub(super) fn special_value_flags(found: &[SpecialValues]) -> Vec<String> {
    let line = |one: &SpecialValues| {
        let values = one.values.as_str();
        if let Some(failure) = &one.failure {
            return Some(format!("with {values} among the inputs its outputs are unknown: {failure}"));
        }
        let outputs: Vec<String> = one
            .outputs
            .iter()
            .map(|output| format!("{} of {} elements of {output}", output.differing, output.elements))
            .collect();
        (!outputs.is_empty()).then(|| {
            format!(
                "with {values} among the inputs it gives values of another class than the default does: {}",
                outputs.join(", ")
            )
        })
    };
    found.iter().filter_map(line).collect()
}

/// The error of a set that changes arithmetic on usual values: the difference of its outputs from the base's.
pub(super) fn error_of(differences: &[OutputDifference]) -> String {
    let error = |one: &OutputDifference| {
        let of_rms = one.of_rms.map_or_else(String::new, |ratio| format!(", {ratio:.1e} of its root mean square"));
        format!("{one} by up to {:.1e}{of_rms}", one.max_absolute)
    };
    match differences.is_empty() {
        true => "it changes arithmetic, and no bit of the outputs".to_owned(),
        false => format!("it changes arithmetic, and with it {}", listed(differences.iter().map(error))),
    }
}
