//! Whether a candidate's outputs are as good as the baseline's: by their differences, by the same program in `f64`, or
//! because only a few elements are off.

use std::path::Path;
use std::time::Instant;

use crate::array::{ArrayError, ArraySpec, ComparedBy, OutputBounds, Tolerance};
use crate::hlo::read_program;
use crate::measure::{MAX_PROGRAM_BYTES, MeasuredProgram, Preflight};
use crate::outside_file;
use crate::timer::events::Slice;
use crate::timer::protocol::ComparedOutput;
use crate::timer::{Job, OutputArray, ProgramFile};

use super::differing::{DifferingOutput, message};
use super::expected::ExpectedOutputs;
use super::in_f64::{WideOutputs, check_same_shapes, check_size, error_from, outputs_in_f64};
use super::measuring::Measuring;
use super::{OutputDifference, RaceError, ReferenceError};

/// The judgement on a candidate's outputs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judged {
    /// The outputs that are not bitwise the baseline's.
    pub(super) differences: Vec<OutputDifference>,
    /// The least strict rule that an output needed; `None` if one is wrong.
    pub(super) by: Option<ComparedBy>,
    /// How far outputs are from those of the program in `f64`, if that was asked.
    pub(super) errors: Vec<ReferenceError>,
    /// What is wrong, if anything.
    pub(super) wrong: Option<String>,
}

/// Per output the errors of the candidate and of the baseline, or why there are none.
type Errors = Result<Vec<Option<(ArrayError, ArrayError)>>, String>;

impl Measuring<'_> {
    /// Judges a candidate's outputs by the comparison of each, and by their files if they are small.
    pub(super) fn judge(
        &mut self,
        candidate: usize,
        outputs: &[Result<ComparedOutput, String>],
        files: &[OutputArray],
        expected: &ExpectedOutputs,
    ) -> Result<Judged, RaceError> {
        let names = self.process.job.results.clone();
        let bounds: Vec<OutputBounds> = expected.specs().enumerate().map(|(at, spec)| self.bounds(at, spec)).collect();
        let errors = match asks_f64(outputs, expected, &bounds) {
            true => Some(self.errors(files, expected, &bounds)?),
            false => None,
        };
        let mut judged = judged(outputs, expected, &bounds, &names, errors.as_ref());
        if judged.by == Some(ComparedBy::Outliers)
            && let Some(wrong) = self.wrong_on_other_inputs(candidate, &bounds)?
        {
            (judged.by, judged.wrong) = (None, Some(wrong));
        }
        Ok(judged)
    }

    /// How far the elements of an output may be off.
    pub(super) fn bounds(&self, index: usize, spec: &ArraySpec) -> OutputBounds {
        let terms = &self.referee.terms;
        let bounds = OutputBounds::of(spec.dtype);
        let bounds = if terms.by_tolerance_alone { bounds.alone() } else { bounds };
        let names = &self.process.job.results;
        let set = self.referee.options.tolerances.get(index, names.get(index).map(String::as_str));
        let bounds = set.or(terms.tolerance).map_or(bounds, |relative| bounds.given(relative));
        let bounds = if spec.dtype.is_narrow_float() { bounds.summing(self.narrow_sum) } else { bounds };
        bounds.slack(terms.slack.get(index).copied().unwrap_or_default())
    }

    /// The errors of a candidate's outputs and of the baseline's against the program in `f64`, which runs if this is
    /// the first question for it.
    fn errors(
        &mut self,
        files: &[OutputArray],
        expected: &ExpectedOutputs,
        bounds: &[OutputBounds],
    ) -> Result<Errors, RaceError> {
        if self.in_f64.is_none() {
            let found = self.run_in_f64(expected, bounds)?;
            self.in_f64 = Some(found);
        }
        let wide = match &self.in_f64 {
            Some(Ok(wide)) => wide,
            Some(Err(why)) => return Ok(Err(why.clone())),
            None => return Ok(Err("it was not run".to_owned())),
        };
        let error = |(index, file): (usize, &OutputArray)| {
            let (exact, baseline) = (wide.files.get(index)?, (*wide.baseline.get(index)?)?);
            let tolerance = bounds.get(index)?.tolerance();
            let own = error_from(index, (&file.spec, &file.read().ok()?), exact, tolerance).ok()??;
            Some((own, baseline))
        };
        Ok(Ok(files.iter().enumerate().map(error).collect()))
    }

    /// Runs the baseline's program in `f64`, beside the job if the timer can, otherwise in place of it.
    fn run_in_f64(
        &mut self,
        expected: &ExpectedOutputs,
        bounds: &[OutputBounds],
    ) -> Result<Result<WideOutputs, String>, RaceError> {
        if self.is_late(Instant::now()) {
            return Ok(Err("the time is used up".to_owned()));
        }
        let _slice = self.process.events.open(Slice::Step("the baseline in f64"));
        let folder = tempfile::tempdir_in(&self.process.job.scratch);
        let planned = folder.map_err(|error| format!("no folder for it: {error}")).and_then(|folder| {
            let specs: Vec<ArraySpec> = expected.specs().cloned().collect();
            planned(self.process.job, self.referee.identity.baseline, &specs, folder.path())
                .map(|(job, program)| (job, program, folder))
        });
        let (job, program, folder) = match planned {
            Ok(planned) => planned,
            Err(why) => return Ok(Err(why)),
        };
        let files = self.on_free_timer(|timer| outputs_in_f64(timer, job, &program, folder.path()))?;
        Ok(files.and_then(|files| {
            check_same_shapes(expected.specs(), &files)?;
            let tolerance = |index: usize| bounds.get(index).map_or(Tolerance::EXACT, OutputBounds::tolerance);
            let baseline = files.iter().enumerate().map(|(index, exact)| {
                let kept = expected.bytes(index)?;
                error_from(index, kept, exact, tolerance(index)).ok()?
            });
            let baseline = baseline.collect();
            Ok(WideOutputs { files, baseline })
        }))
    }
}

/// The job of the baseline's program in `f64`, and the program, or why there is none.
fn planned(job: &Job, baseline: usize, results: &[ArraySpec], folder: &Path) -> Result<(Job, ProgramFile), String> {
    let candidate = job.candidates.get(baseline);
    let file = candidate.and_then(|candidate| candidate.program.as_ref());
    let (candidate, file) = candidate.zip(file).ok_or("the worker builds the baseline's program")?;
    let bytes = outside_file::bytes(&file.path, MAX_PROGRAM_BYTES).map_err(|error| error.to_string())?;
    let form = read_program(&bytes, "the baseline's program").map_err(|error| error.to_string())?;
    if form.partitions > 1 {
        return Err("the program runs on several devices".to_owned());
    }
    let wide = MeasuredProgram::of_bytes(&bytes, &file.path).map_err(|error| error.to_string())?.in_f64()?;
    check_size(results)?;
    let arguments: Vec<ArraySpec> = job.inputs.iter().map(|input| input.spec.clone()).collect();
    let preflight = Preflight::of([], folder).with_reference(&arguments, results);
    preflight.check(folder).map_err(|error| error.to_string())?;
    let mut program = wide.write(folder, "program").map_err(|error| error.to_string())?;
    program.compile_options.clone_from(&file.compile_options);
    let job = Job { candidates: vec![candidate.clone()], ..job.clone() };
    Ok((job, program))
}

/// Whether the program in `f64` would decide about any output, and none is wrong whatever it says.
fn asks_f64(outputs: &[Result<ComparedOutput, String>], expected: &ExpectedOutputs, bounds: &[OutputBounds]) -> bool {
    let deviations = || {
        outputs.iter().zip(bounds).enumerate().map(|(index, (output, bounds))| {
            let output = output.as_ref().ok().filter(|output| Some(&output.spec) == expected.spec(index))?;
            Some((output.deviation(expected.rms(index)), bounds))
        })
    };
    let has_all = matches!(expected, ExpectedOutputs::Here(_)) && outputs.len() == expected.len();
    has_all
        && deviations().all(|of| of.is_some_and(|(found, bounds)| !bounds.is_hopeless(&found)))
        && deviations().flatten().any(|(found, bounds)| bounds.settled(&found).is_none() && bounds.asks_f64())
}

/// Judges each output. Messages are for the wrong ones.
pub(super) fn judged(
    outputs: &[Result<ComparedOutput, String>],
    expected: &ExpectedOutputs,
    bounds: &[OutputBounds],
    names: &[String],
    errors: Option<&Errors>,
) -> Judged {
    if outputs.len() != expected.len() {
        let wrong = Some(format!("{} outputs, the baseline has {}", outputs.len(), expected.len()));
        return Judged { wrong, ..Judged::default() };
    }
    let (mut judged, mut wrong) = (Judged { by: Some(ComparedBy::Bitwise), ..Judged::default() }, Vec::new());
    for (index, (output, bounds)) in outputs.iter().zip(bounds).enumerate() {
        // another number of names belongs to another form of the outputs
        let name = names.get(index).filter(|_| names.len() == outputs.len()).cloned().unwrap_or_default();
        let of_output = errors.and_then(|errors| errors.as_ref().ok()?.get(index).copied().flatten());
        let found = DifferingOutput::of(index, name, output, expected, of_output);
        let found = match found {
            Ok(found) => found,
            Err(text) => {
                wrong.push(text);
                continue;
            }
        };
        let is_different = found.difference.differing > 0 || found.difference.max_absolute > 0.0;
        judged.differences.extend(is_different.then(|| found.difference.clone()));
        let is_trusted = of_output.is_some_and(|(_, baseline)| bounds.trusts(&baseline));
        judged.errors.extend(found.reference_error().filter(|_| is_trusted));
        match bounds.judge(&found.deviation, of_output.as_ref()) {
            Ok(by) => judged.by = judged.by.max(Some(by)),
            Err(why) => wrong.push(found.describe(why, is_trusted)),
        }
    }
    judged.wrong = message(wrong, errors.and_then(|errors| errors.as_ref().err()));
    if judged.wrong.is_some() {
        judged.by = None;
    }
    judged
}

#[cfg(test)]
mod tests;
