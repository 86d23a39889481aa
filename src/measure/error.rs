//! Why a program could not be measured.

use std::io;
use std::path::PathBuf;

use super::compiled_with::CompiledWithError;
use crate::array::FillError;
use crate::failure::{Failure, FailureKind};
use crate::hlo::ScanError;
use crate::io_hint::{io_hint, scratch_hint};
use crate::profile::KernelsDiffer;
use crate::timer::NO_PROFILER;

/// The advice for HLO text.
const DUMP_A_PROTO: &str = "dump a form that plugins compile: `XLA_FLAGS='--xla_dump_to=FOLDER \
                            --xla_dump_hlo_as_proto'`, or `autotune_lowered.dump(lowered, \"module.mlir\")`";

/// Why a program could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A file cannot be read: the program, or an input.
    #[error("`{path}`: cannot be read: {source}{}", io_hint(source), path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a program.
    #[error(transparent)]
    NotAProgram(#[from] ScanError),
    /// The side file of a module cannot be used.
    #[error(transparent)]
    SideFile(ScanError),
    /// The compile options in a side file are damaged, or set what no file may set.
    #[error("the side file `{path}` has `compile_options` {source}", path = path.display())]
    CompileOptions {
        /// The side file.
        path: PathBuf,
        /// Why not.
        source: CompiledWithError,
    },
    /// HLO text.
    #[error("`{path}`: is HLO text, which no plugin compiles; {DUMP_A_PROTO}", path = path.display())]
    HloText {
        /// The file.
        path: PathBuf,
    },
    /// HLO text from after XLA's passes.
    #[error(
        "`{path}`: is HLO text from after XLA's passes, which would run a second time; give StableHLO or the \
         HloModuleProto from before them",
        path = path.display()
    )]
    OptimizedText {
        /// The file.
        path: PathBuf,
    },
    /// HLO text that could not be converted to an HloModuleProto.
    #[error("`{path}`: is HLO text, and {reason}; {DUMP_A_PROTO}", path = path.display())]
    NotConverted {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The program runs on several devices, whose kernels are not one list.
    #[error("`{path}`: is a program of {partitions} partitions; give one that runs on one \
             device", path = path.display())]
    Partitioned {
        /// The file.
        path: PathBuf,
        /// Its partitions.
        partitions: u64,
    },
    /// HLO text of a program that runs on several devices. Plugins compile protos, and a proto does not contain the
    /// number of devices.
    #[error(
        "`{path}`: is HLO text of {partitions} partitions, which it does not tell the compiler; give StableHLO: \
         `autotune_lowered.dump(lowered, \"module.mlir\")` in Python",
        path = path.display()
    )]
    PartitionedText {
        /// The file.
        path: PathBuf,
        /// Its partitions.
        partitions: u64,
    },
    /// An input cannot be made.
    #[error("argument {index}: {source}")]
    Fill {
        /// The argument.
        index: usize,
        /// Why.
        source: FillError,
    },
    /// An argument's type cannot hold the requested values.
    #[error("`--fill` of the argument `{argument}`: {reason}")]
    Values {
        /// The argument, as the user named it.
        argument: String,
        /// Why not.
        reason: String,
    },
    /// A folder of captured inputs is invalid.
    #[error("`{path}`: {reason}", path = path.display())]
    Captured {
        /// The manifest, or the file of an input.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No argument has the name.
    #[error("`--fill`: no argument has the name `{argument}`; there are: {arguments}")]
    UnknownArgument {
        /// The name that the user gave.
        argument: String,
        /// The names of arguments.
        arguments: String,
    },
    /// The file of an input has another size than its array.
    #[error("`{path}`: {bytes} bytes are not argument {index}, {spec}: its dense little-endian \
             elements", path = path.display())]
    InputSize {
        /// The file.
        path: PathBuf,
        /// The argument.
        index: usize,
        /// Its array.
        spec: String,
        /// The file's size.
        bytes: u64,
    },
    /// The inputs do not fit into the free disk space or memory.
    #[error("{message}")]
    NoRoom {
        /// What is short, how much is free and how much is needed.
        message: String,
    },
    /// The scratch folder cannot be written.
    #[error("`{path}`: cannot be written: {source}{}", scratch_hint(source), path = path.display())]
    Scratch {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The timer cannot take profiles.
    #[error("the timer `{timer}` takes no profiles, and only these distinguish kernels{}", way(reason.as_deref()))]
    NoProfiles {
        /// The timer.
        timer: String,
        /// Why not, if the timer says so.
        reason: Option<String>,
    },
    /// The timer does not report the program's parameters.
    #[error("the timer `{timer}` does not report the program's inputs, so none can be made")]
    NoSignature {
        /// The timer.
        timer: String,
    },
    /// The worker failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The iterations did not do the same work.
    #[error(transparent)]
    KernelsDiffer(#[from] KernelsDiffer),
}

/// Why there are no profiles, if that can be mended, or who takes them.
fn way(reason: Option<&str>) -> String {
    match reason {
        None | Some(NO_PROFILER) => "; `--timer jax` takes them".to_owned(),
        Some(reason) => format!(": {reason}"),
    }
}

impl MeasureError {
    /// Whether other inputs could fix it, but no other device or worker.
    pub fn is_of_input(&self) -> bool {
        match self {
            Self::Unreadable { .. }
            | Self::NotAProgram(_)
            | Self::SideFile(_)
            | Self::CompileOptions { .. }
            | Self::HloText { .. }
            | Self::OptimizedText { .. }
            | Self::NotConverted { .. }
            | Self::Partitioned { .. }
            | Self::PartitionedText { .. }
            | Self::Fill { .. }
            | Self::Values { .. }
            | Self::Captured { .. }
            | Self::UnknownArgument { .. }
            | Self::InputSize { .. } => true,
            Self::Failed(failure) => matches!(
                failure.kind,
                FailureKind::Compile
                    | FailureKind::Unreadable
                    | FailureKind::Signature
                    | FailureKind::CustomCall
                    | FailureKind::NoProgram
            ),
            Self::NoRoom { .. }
            | Self::Scratch { .. }
            | Self::NoProfiles { .. }
            | Self::NoSignature { .. }
            | Self::KernelsDiffer(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_without_profiles_says_why_or_who_takes_them() {
        let said = |reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            MeasureError::NoProfiles { timer: "pjrt".into(), reason }.to_string()
        };
        let other = "the timer `pjrt` takes no profiles, and only these distinguish kernels; `--timer jax` takes them";
        assert_eq!((said(None).as_str(), said(Some(NO_PROFILER)).as_str()), (other, other));
        assert!(said(Some("the plugin finds no ptxas")).ends_with("distinguish kernels: the plugin finds no ptxas"));
    }
}
