//! Why nothing could be proven or disproven.

use std::io;
use std::path::PathBuf;

use crate::compare::CompareError;
use crate::io_hint::{io_hint, scratch_hint};
use crate::measure::MeasureError;

/// Why a step's variants could not be raced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// The folder, its manifest or a program cannot be read.
    #[error("`{path}`: cannot be read: {source}{}", io_hint(source), path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder has no manifest.
    #[error(
        "`{path}`: there is no such file: name the folder that `autotune_lowered.dump(step, DIR, args=(…), \
         variants=result)` wrote",
        path = path.display()
    )]
    NoManifest {
        /// The file.
        path: PathBuf,
    },
    /// The manifest or a program is not what `dump` wrote.
    #[error("`{path}`: {reason}; dump the step again with `variants=`", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is not a program that a plugin compiles.
    #[error(transparent)]
    Program(#[from] MeasureError),
    /// A race ended without a result.
    #[error(transparent)]
    Race(#[from] CompareError),
    /// The scratch folder cannot be written.
    #[error("a folder for a race cannot be made: {source}{}", scratch_hint(source))]
    Scratch {
        /// What the system said.
        source: io::Error,
    },
}

impl ProveError {
    /// Whether the input is at fault, and not the device or the worker.
    pub fn is_of_input(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::NoManifest { .. } | Self::Damaged { .. } => true,
            Self::Program(error) => error.is_of_input(),
            Self::Race(error) => error.is_of_input(),
            Self::Scratch { .. } => false,
        }
    }
}
