//! A reference of higher precision: the module in `f64` on the same inputs. It shows whether a difference is the set's
//! error or the default's.

use std::collections::BTreeMap;
use std::path::Path;

use super::race::VariantRaces;
use super::special_values::of_device;
use super::variant::{OptionVariant, Variants};
use crate::array::{ArrayError, OutputBounds};
use crate::config::Config;
use crate::counted::listed;
use crate::failure::{Failure, FailureKind};
use crate::measure::{MeasuredProgram, Preflight};
use crate::race::{
    CandidateOutcome, CandidateResult, RaceError, ReferenceError, check_same_shapes, check_size, error_from,
    outputs_in_f64,
};
use crate::timer::events::Slice;
use crate::timer::{OutputArray, ProgramSignature, TimerExt};

/// A set's error may be this multiple of the default's, if that is more than the tolerance.
const TIMES_THE_DEFAULTS: f64 = 2.0;
/// Maximum number of rejected sets that are compared with the reference.
const MOST_REJECTED: usize = 8;

/// The module in `f64`, or why there is none, with a preflight for both modules.
pub(super) fn planned(
    program: &MeasuredProgram,
    preflight: Preflight,
    signature: &ProgramSignature,
    scratch: &Path,
) -> (Preflight, Result<MeasuredProgram, String>) {
    let wide = program.in_f64().and_then(|wide| {
        let results = signature.results.as_deref().unwrap_or_default();
        check_size(results)?;
        let larger = preflight.clone().with_reference(&signature.parameters, results);
        larger.check(scratch).map_err(|error| error.to_string())?;
        Ok((larger, wide))
    });
    match wide {
        Ok((larger, wide)) => (larger, Ok(wide)),
        Err(why) => (preflight, Err(why)),
    }
}

/// Compares sets with the module in `f64`: finalists whose outputs differ from the base's, sets that change arithmetic,
/// and some that were rejected for their outputs. Writes the errors into their rows and refuses a set whose error is
/// clearly larger than the base's. Returns a further note.
pub(super) fn try_reference(
    races: &mut VariantRaces<'_>,
    wide: Result<MeasuredProgram, String>,
    (variants, base): (&Variants<'_>, &OptionVariant),
    finalists: &[OptionVariant],
    rows: &mut BTreeMap<Config, CandidateResult>,
) -> Result<Option<String>, RaceError> {
    let mut rejected = 0;
    let mut is_asked = |row: &CandidateResult, variant: &OptionVariant| match &row.outcome {
        CandidateOutcome::Measured(_) => {
            let is_finalist = finalists.iter().any(|finalist| finalist.config == row.config);
            variants.changes_arithmetic(variant) || (is_finalist && !row.differences.is_empty())
        }
        CandidateOutcome::Failed(Failure { kind: FailureKind::WrongOutput, .. }) => {
            rejected += 1;
            rejected <= MOST_REJECTED
        }
        _ => false,
    };
    let known = rows.values().filter_map(|row| Some((row, variants.of(&row.config)?)));
    let asked: Vec<OptionVariant> =
        known.filter(|(row, variant)| is_asked(row, variant)).map(|(_, variant)| variant).collect();
    if asked.is_empty() {
        return Ok(None);
    }
    let found = match wide {
        _ if races.until.is_over() => Err("the time is used up".to_owned()),
        Ok(wide) => reference_errors(races, &wide, base, &asked)?,
        Err(why) => Err(why),
    };
    let found = match found {
        Ok(found) => found,
        Err(why) => return Ok(Some(format!("no reference in f64: {why}"))),
    };
    let mut closer = Vec::new();
    for (variant, errors) in asked.iter().zip(found) {
        let Some(row) = rows.get_mut(&variant.config) else { continue };
        if row.failure().is_some() {
            closer.extend(is_closer(&errors).then(|| row.config.to_brief()));
        } else if let Some(why) = refusal(&errors) {
            row.outcome = CandidateOutcome::Failed(Failure::new(FailureKind::WrongOutput, why));
        }
        row.reference_errors = errors;
    }
    let line = "rejected for other outputs than the default's, and closer than the default to the same module in f64";
    Ok((!closer.is_empty()).then(|| format!("{line}: {}", listed(closer))))
}

/// Whether no output has a larger error than the base's, and at least one has a smaller one.
fn is_closer(errors: &[ReferenceError]) -> bool {
    let pairs = || errors.iter().map(|one| (one.own.max_absolute, one.baseline.max_absolute));
    pairs().all(|(own, base)| own <= base) && pairs().any(|(own, base)| own < base)
}

/// The errors of each variant's outputs and of the base's, relative to the module in `f64`; otherwise why they are
/// unknown for all. The timer has no job afterwards.
fn reference_errors(
    races: &mut VariantRaces<'_>,
    wide: &MeasuredProgram,
    base: &OptionVariant,
    variants: &[OptionVariant],
) -> Result<Result<Vec<Vec<ReferenceError>>, String>, RaceError> {
    let _slice = races.runner.events.open(Slice::Step("the module in f64"));
    let reference = reference(races, wide, base);
    races.runner.timer.end();
    let reference = match reference {
        Ok(reference) => reference,
        Err(why) => return Ok(Err(why)),
    };
    let all: Vec<OptionVariant> = std::iter::once(base).chain(variants).cloned().collect();
    let job = races.job(&all);
    races.runner.begin(&job)?;
    let mut found = Vec::new();
    for candidate in 0..all.len() {
        races.runner.check_cancelled()?;
        let outputs = races.runner.run_once(candidate, |timer| timer.output_files(candidate));
        found.push(outputs.map_err(|failure| failure.message).and_then(|outputs| errors(races, &outputs, &reference)));
    }
    races.runner.timer.end();
    let mut found = found.into_iter();
    let of_base = match found.next() {
        Some(Ok(of_base)) => of_base,
        Some(Err(why)) => return Ok(Err(format!("the default's outputs are unknown: {why}"))),
        None => Vec::new(),
    };
    let beside = |own: Vec<Option<_>>| {
        let both = own.into_iter().zip(&of_base).enumerate();
        let both = both.filter_map(|(output, (own, baseline))| {
            let name = races.results.get(output).cloned().unwrap_or_default();
            Some(ReferenceError { output, name, own: own?, baseline: (*baseline)? })
        });
        both.collect()
    };
    Ok(Ok(found.map(|own| own.map(beside).unwrap_or_default()).collect()))
}

/// The outputs of the module in `f64`, compiled with the base's options.
fn reference(
    races: &mut VariantRaces<'_>,
    wide: &MeasuredProgram,
    base: &OptionVariant,
) -> Result<Vec<OutputArray>, String> {
    let folder = tempfile::tempdir_in(races.scratch).map_err(|error| of_device("a folder", &error).to_string())?;
    let program = wide.write(folder.path(), "program").map_err(|error| error.to_string())?;
    let job = races.job(std::slice::from_ref(base));
    outputs_in_f64(races.runner.timer, job, &program, folder.path())
}

/// The error of each output; `None` for integers.
fn errors(
    races: &VariantRaces<'_>,
    outputs: &[OutputArray],
    reference: &[OutputArray],
) -> Result<Vec<Option<ArrayError>>, String> {
    check_same_shapes(outputs.iter().map(|output| &output.spec), reference)?;
    let error = |(index, (own, exact)): (usize, (&OutputArray, &OutputArray))| {
        let slack = races.slack.get(index).copied().unwrap_or_default();
        let bytes = own.read().map_err(|error| of_device("outputs", &error).to_string())?;
        error_from(index, (&own.spec, &bytes), exact, OutputBounds::of(own.spec.dtype).slack(slack).tolerance())
    };
    outputs.iter().zip(reference).enumerate().map(error).collect()
}

/// Why a set is refused: an output's error exceeds both the tolerance and the allowed multiple of the default's.
fn refusal(errors: &[ReferenceError]) -> Option<String> {
    let is_beyond =
        |one: &&ReferenceError| one.own.of_tolerance > (TIMES_THE_DEFAULTS * one.baseline.of_tolerance).max(1.0);
    let wrong: Vec<String> = errors
        .iter()
        .filter(is_beyond)
        .map(|one| {
            let (own, base) = (one.own, one.baseline);
            format!(
                "{one} is off by up to {:.3e} from the same module in f64, {:.1} times the tolerance, and the \
                 default's by {:.3e}, {:.1} times",
                own.max_absolute, own.of_tolerance, base.max_absolute, base.of_tolerance
            )
        })
        .collect();
    (!wrong.is_empty()).then(|| listed(wrong))
}

/// The note on the winning set's error.
pub(super) fn error_from_reference(errors: &[ReferenceError]) -> Option<String> {
    let error = |one: &ReferenceError| {
        format!("{one} by up to {:.1e}, the default's by {:.1e}", one.own.max_absolute, one.baseline.max_absolute)
    };
    let line = || format!("off from the same module in f64: {}", listed(errors.iter().map(error)));
    (!errors.is_empty()).then(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::ArraySpec;

    /// Without enough room there is no reference, and the run goes on.
    #[test]
    fn a_reference_without_room_is_none() {
        let text = "func.func public @main(%x: tensor<1024xf32>) -> tensor<1024xf32>";
        let program = MeasuredProgram::of_text(text);
        let spec: ArraySpec = "f32[1024]".parse().unwrap();
        let signature = ProgramSignature::new(vec![spec.clone()]).results(Some(vec![spec.clone()]));
        let scratch = tempfile::tempdir().unwrap();
        let mut preflight = Preflight::of([(&spec, true)], scratch.path());
        // 8 KiB of inputs and 8 KiB of outputs in `f64`, beside the 4 KiB of inputs in `f32`
        preflight.disk_free = Some(4096 + 2 * 8192);
        let (larger, wide) = planned(&program, preflight.clone(), &signature, scratch.path());
        assert_eq!(larger.disk_bytes, 4096 + 2 * 8192);
        assert!(wide.unwrap().stablehlo_digest() != program.stablehlo_digest());
        preflight.disk_free = Some(4095 + 2 * 8192);
        let (same, wide) = planned(&program, preflight.clone(), &signature, scratch.path());
        let why = wide.unwrap_err();
        assert!(same == preflight && why.contains("take 20.0 KiB of disk"), "{why}");
        // 2^24 numbers are 128 MiB in f64
        let outputs = |spec: &str| ProgramSignature::new(Vec::new()).results(Some(vec![spec.parse().unwrap()]));
        (preflight.disk_free, preflight.host_free) = (None, None);
        assert!(planned(&program, preflight.clone(), &outputs("f32[16777216]"), scratch.path()).1.is_ok());
        let (_, wide) = planned(&program, preflight, &outputs("f32[16777217]"), scratch.path());
        assert_eq!(wide.unwrap_err(), "in f64 its outputs take more than 128 MiB");
    }
}
