//! Candidates that are right but for a few elements, on other inputs: an error may hit so few of one set of values that
//! it looks like rounding.

use std::fs;
use std::io;
use std::path::Path;

use crate::array::{Fill, OutputBounds, Reference, argument_seed, generate};
use crate::failure::{Failure, FailureKind};
use crate::io_hint::io_hint;
use crate::timer::events::Slice;
use crate::timer::{InputArray, Job, OutputsAs, TakenOutputs, Timer, TimerExt};

use super::RaceError;
use super::expected::{ExpectedOutputs, LARGE_OUTPUTS};
use super::judging::judged;
use super::measuring::Measuring;
use super::outputs::compared_here;

/// How many further sets of inputs a candidate must be right on.
const SETS: u64 = 2;

impl Measuring<'_> {
    /// What is wrong with a candidate on inputs that are drawn anew, if anything; nothing if none can be drawn.
    pub(super) fn wrong_on_other_inputs(
        &mut self,
        candidate: usize,
        bounds: &[OutputBounds],
    ) -> Result<Option<String>, RaceError> {
        let fills = self.referee.terms.fills;
        if !fills.iter().flatten().any(Fill::is_random) {
            let config = self.process.config(candidate).to_brief();
            self.evidence.notes.push(format!(
                "{config} was accepted although a few elements are beyond the tolerance, on one set of inputs alone, \
                 because their values are given and not drawn"
            ));
            return Ok(None);
        }
        let _slice = self.process.events.open(Slice::Step("other inputs"));
        let pair = [self.referee.identity.baseline, candidate];
        let candidates = pair.iter().filter_map(|&one| self.process.job.candidates.get(one).cloned()).collect();
        let job = Job { candidates, ..self.process.job.clone() };
        self.on_free_timer(|timer| {
            (1..=SETS).find_map(|set| {
                let wrong = wrong_on_set(timer, &job, fills, bounds, set);
                wrong
                    .unwrap_or_else(|failure| Some(failure.to_string()))
                    .map(|wrong| format!("on other inputs, {wrong}"))
            })
        })
    }

    /// Works with a timer of the device that has no job: another one if the device can have two, else this one, which
    /// then begins its job again.
    pub(super) fn on_free_timer<T>(&mut self, work: impl FnOnce(&mut dyn Timer) -> T) -> Result<T, RaceError> {
        if let Some(mut beside) = self.process.timer.beside() {
            return Ok(work(&mut *beside));
        }
        self.process.timer.end();
        let done = work(self.process.timer);
        self.process.timer.end();
        self.begin_again()?;
        Ok(done)
    }
}

/// What is wrong with the second candidate of a job on a set of inputs, if anything.
fn wrong_on_set(
    timer: &mut dyn Timer,
    job: &Job,
    fills: &[Option<Fill>],
    bounds: &[OutputBounds],
    set: u64,
) -> Result<Option<String>, Failure> {
    let no_files = |error: io::Error| {
        Failure::new(FailureKind::Device, format!("there are no files for other inputs: {error}{}", io_hint(&error)))
    };
    let folder = tempfile::tempdir_in(&job.scratch).map_err(no_files)?;
    let inputs = drawn(&job.inputs, fills, folder.path(), set).map_err(no_files)?;
    timer.begin(&Job { inputs, ..job.clone() })?;
    timer.prepare(0)?;
    timer.prepare(1)?;
    let (expected, found) = match timer.outputs(0, OutputsAs::KeptAbove(LARGE_OUTPUTS))? {
        TakenOutputs::Kept(kept) => {
            let tolerances: Vec<_> = bounds.iter().map(OutputBounds::tolerance).collect();
            let found = timer.outputs(1, OutputsAs::Compared(&tolerances))?.into_compared()?;
            (ExpectedOutputs::Kept(kept), found.into_iter().map(Ok).collect())
        }
        files => {
            let files = files.into_files()?.into_iter().zip(bounds);
            let reference: io::Result<Vec<Reference>> = files
                .map(|(file, bounds)| file.read().map(|bytes| Reference::new(file.spec, bytes, bounds.tolerance())))
                .collect();
            let reference = reference.map_err(no_files)?;
            let found = compared_here(&timer.output_files(1)?, &reference);
            (ExpectedOutputs::Here(reference), found)
        }
    };
    Ok(judged(&found, &expected, bounds, &job.results, None).wrong)
}

/// Inputs with other random values; those that are given stay.
fn drawn(inputs: &[InputArray], fills: &[Option<Fill>], folder: &Path, set: u64) -> io::Result<Vec<InputArray>> {
    let draw = |(index, input): (usize, &InputArray)| {
        let Some(fill) = fills.get(index).and_then(Option::as_ref).filter(|fill| fill.is_random()) else {
            return Ok(input.clone());
        };
        let seed = argument_seed(&input.name, index as u64).wrapping_add(set);
        let values = generate(&input.spec, fill, seed).map_err(io::Error::other)?;
        let path = folder.join(format!("{index}.bin"));
        fs::write(&path, values)?;
        Ok(InputArray { path, ..input.clone() })
    };
    inputs.iter().enumerate().map(draw).collect()
}
