//! A program's device time: the sum of its kernels, or the span from the first to the last with the gaps between them.
//!
//! [`make_inputs`] makes the inputs of a whole program. [`measure`] compiles a program with a timer that takes
//! profiles, makes its inputs from its parameters, and runs it under one profile. The result is a
//! [`crate::profile::Measurement`] with its circumstances. [`measure_peaks`] runs programs of its own for the roof of a
//! device without a data sheet.

mod captured;
mod compiled_with;
mod error;
mod input_options;
mod inputs;
mod peaks;
mod preflight;
mod program;
mod run;

pub use compiled_with::{CompiledWith, CompiledWithError};
pub use error::MeasureError;
pub use input_options::{ArgumentFill, FillValues, InputOptions};
pub use inputs::{InputSource, Inputs, MadeInput, make_inputs};
pub use peaks::{MeasuredPeak, MeasuredPeaks, PeakOf, Skipped, measure_peaks};
pub use preflight::Preflight;
pub(crate) use program::MAX_PROGRAM_BYTES;
pub use program::MeasuredProgram;
pub use run::{MeasureMode, MeasureOptions, Measured, WARM_UP, measure};
