//! A program in `f64` on the same inputs, as the reference for the rounding errors of others.

use std::fs;
use std::path::Path;

use crate::array::{ArrayError, ArraySpec, Tolerance, error_of, widened};
use crate::failure::{Failure, FailureKind};
use crate::io_hint::io_hint;
use crate::timer::{InputArray, Job, OutputArray, OutputsAs, ProgramFile, TakenOutputs, Timer};

use super::LARGE_OUTPUTS;

/// Maximum bytes of all outputs in `f64`: twice the `f32` outputs that are written to files.
const LARGEST_OUTPUTS: u64 = 2 * LARGE_OUTPUTS;

/// The outputs of the baseline's program in `f64`.
pub(super) struct WideOutputs {
    pub(super) files: Vec<OutputArray>,
    /// By output, how far the baseline's is off; `None` for integers, and for what cannot be compared.
    pub(super) baseline: Vec<Option<ArrayError>>,
}

/// Whether outputs of these types are small enough in `f64`.
///
/// # Errors
/// Why they are not.
pub(crate) fn check_size<'a>(outputs: impl IntoIterator<Item = &'a ArraySpec>) -> Result<(), String> {
    let mut sizes = outputs.into_iter().map(|spec| spec.in_f64().host_bytes());
    let bytes = sizes.try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
    match bytes.is_some_and(|bytes| bytes <= LARGEST_OUTPUTS) {
        true => Ok(()),
        false => Err(too_large()),
    }
}

fn too_large() -> String {
    format!("in f64 its outputs take more than {} MiB", LARGEST_OUTPUTS >> 20)
}

/// The outputs of a program in `f64`, given the job whose one candidate it replaces, and a folder for its inputs. The
/// timer has that job afterwards, or none.
///
/// # Errors
/// Why there are none, in a few words.
pub(crate) fn outputs_in_f64(
    timer: &mut dyn Timer,
    job: Job,
    program: &ProgramFile,
    folder: &Path,
) -> Result<Vec<OutputArray>, String> {
    let message_of = |failure: Failure| failure.to_string();
    let mut job = Job { inputs: wider(&job.inputs, folder).map_err(message_of)?, ..job };
    job.candidates.truncate(1);
    job.candidates.iter_mut().for_each(|candidate| candidate.program = Some(program.clone()));
    // these inputs may be too large, but others are not: the next job starts the worker again
    timer.begin(&job).map_err(message_of)?;
    let taken = timer.prepare(0).and_then(|_| timer.outputs(0, OutputsAs::KeptAbove(LARGEST_OUTPUTS)));
    if taken.as_ref().is_err_and(Failure::needs_restart) {
        timer.restart(&[0]).map_err(message_of)?;
    }
    let outputs = match taken {
        Ok(TakenOutputs::Kept(_)) => return Err(too_large()),
        outputs => outputs.and_then(TakenOutputs::into_files).map_err(message_of)?,
    };
    check_size(outputs.iter().map(|output| &output.spec))?;
    Ok(outputs)
}

/// The same values in `f64`.
fn wider(inputs: &[InputArray], folder: &Path) -> Result<Vec<InputArray>, Failure> {
    let wide = |(index, input): (usize, &InputArray)| {
        let spec = input.spec.in_f64();
        if spec == input.spec {
            return Ok(input.clone());
        }
        let path = folder.join(format!("{index}.bin"));
        fs::write(&path, widened(input.spec.dtype, &fs::read(&input.path)?))?;
        Ok(InputArray { spec, path, ..input.clone() })
    };
    let inputs: std::io::Result<Vec<InputArray>> = inputs.iter().enumerate().map(wide).collect();
    inputs.map_err(|error| Failure::new(FailureKind::Device, format!("files: {error}{}", io_hint(&error))))
}

/// Whether a program gives arrays of the same shapes as another in `f64`.
///
/// # Errors
/// If it does not.
pub(crate) fn check_same_shapes<'a>(
    own: impl Iterator<Item = &'a ArraySpec>,
    reference: &[OutputArray],
) -> Result<(), String> {
    match own.map(ArraySpec::in_f64).eq(reference.iter().map(|output| output.spec.in_f64())) {
        true => Ok(()),
        false => Err("the outputs in `f64` are other arrays".to_owned()),
    }
}

/// How far an output is from that of the program in `f64`; `None` for integers.
///
/// # Errors
/// If it cannot be compared.
pub(crate) fn error_from(
    index: usize,
    (spec, bytes): (&ArraySpec, &[u8]),
    exact: &OutputArray,
    tolerance: Tolerance,
) -> Result<Option<ArrayError>, String> {
    if !spec.dtype.has_fractions() {
        return Ok(None);
    }
    let exact = exact.read().map_err(|error| format!("the outputs cannot be read: {error}{}", io_hint(&error)))?;
    let found = error_of(spec, bytes, &exact, tolerance);
    found.map(Some).ok_or_else(|| format!("output {index} is not finite throughout, here or in `f64`"))
}
