//! Why programs could not be compared.

use crate::failure::{Failure, FailureKind};
use crate::measure::MeasureError;
use crate::race::RaceError;

/// Why programs could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// There is only one program.
    #[error("{0} programs are given, but a comparison needs two or more; one may be named twice")]
    TooFew(usize),
    /// A program or its inputs cannot be used.
    #[error(transparent)]
    Program(#[from] MeasureError),
    /// Two programs take different arguments.
    #[error("`{other}` takes {others}, `{first}` takes {firsts}: only programs with the same inputs can be compared")]
    OtherArguments {
        /// The first program.
        first: String,
        /// Its arguments.
        firsts: String,
        /// The other one.
        other: String,
        /// Its arguments.
        others: String,
    },
    /// Two programs return different arrays.
    #[error("`{other}` gives {others}, `{first}` gives {firsts}: only programs with the same outputs can be compared")]
    OtherResults {
        /// The first program.
        first: String,
        /// Its results.
        firsts: String,
        /// The other one.
        other: String,
        /// Its results.
        others: String,
    },
    /// The first contestant fails, so there is nothing to compare the others with.
    #[error("`{name}`: {failure}")]
    First {
        /// Its name.
        name: String,
        /// Why.
        failure: Failure,
    },
    /// The worker or the user ended it, or a store failed.
    #[error(transparent)]
    Race(RaceError),
}

impl CompareError {
    /// Whether the input is at fault, and not the device or the worker.
    pub fn is_of_input(&self) -> bool {
        match self {
            Self::TooFew(_) | Self::OtherArguments { .. } | Self::OtherResults { .. } => true,
            Self::Program(error) => error.is_of_input(),
            Self::First { failure, .. } => is_of_program(failure),
            Self::Race(_) => false,
        }
    }
}

/// Whether a failure is due to the program and its inputs, and not to what runs it.
fn is_of_program(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Compile
            | FailureKind::Signature
            | FailureKind::Unreadable
            | FailureKind::CustomCall
            | FailureKind::NoProgram
            | FailureKind::NotFinite
    )
}
