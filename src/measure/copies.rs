//! One program as several candidates of a job.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::MeasureError;
use super::input_options::InputOptions;
use super::inputs::make_inputs;
use super::program::MeasuredProgram;
use super::run::job;
use crate::array::ArraySpec;
use crate::config::Config;
use crate::measured_by::CacheState;
use crate::timer::{Job, JobCandidate, Timer};

/// A job of `copies` candidates with the same program, each loaded separately. The inputs are made from `parameters`; if those
/// are unknown, from the timer's report on the program.
///
/// # Errors
/// If the program cannot be written or compiled, or its inputs cannot be made.
pub fn job_of_copies(
    timer: &mut dyn Timer,
    program: &MeasuredProgram,
    parameters: Option<&[ArraySpec]>,
    copies: usize,
    cache_state: CacheState,
    scratch: &Path,
) -> Result<Job, MeasureError> {
    let file = program.write(scratch, "program")?;
    let specs = match parameters {
        Some(specs) => specs.to_vec(),
        None => {
            timer.begin(&job(&file, Vec::new(), cache_state.clone(), scratch))?;
            let specs = timer.signature(0)?;
            specs.ok_or_else(|| MeasureError::NoSignature { timer: timer.info().name.clone() })?.parameters
        }
    };
    let inputs = make_inputs(program, &specs, &InputOptions::default(), scratch)?.arrays;
    let copy = |number: usize| {
        let name = Map::from_iter([("copy".to_owned(), Value::from(number))]);
        JobCandidate::new(Config::new(name)).program(Some(file.clone()))
    };
    Ok(Job { candidates: (0..copies).map(copy).collect(), ..job(&file, inputs, cache_state, scratch) })
}
