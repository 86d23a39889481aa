//! What the arrays of a race are, and whether they fit.

use super::LARGE_OUTPUTS;
use crate::array::ArraySpec;
use crate::failure::{Failure, FailureKind};
use crate::measure::{Inputs, Preflight};
use crate::timer::Timer;

/// What the inputs of a race need on so many devices, and what the outputs need if the programs report them.
pub(crate) fn preflight(timer: &dyn Timer, inputs: &Inputs, results: Option<&[ArraySpec]>, devices: u64) -> Preflight {
    let files_up_to = if timer.compares_outputs() { LARGE_OUTPUTS } else { u64::MAX };
    let preflight = inputs.preflight.clone();
    let preflight = match results {
        Some(results) => preflight.with_outputs(results, files_up_to),
        None => preflight,
    };
    preflight.on_device(timer.device_memory(), devices)
}

/// The failure of a timer that does not know the inputs of a module.
pub(crate) fn no_signature(timer: &dyn Timer) -> Failure {
    Failure::new(FailureKind::Signature, format!("the timer `{}` does not report the module's inputs", timer.name()))
}
