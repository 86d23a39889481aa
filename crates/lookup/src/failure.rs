//! Why a candidate gave no sample.
//!
//! ```
//! use autotune_lowered_lookup::failure::{Failure, FailureKind};
//!
//! let failure = Failure::new(FailureKind::Crash, "ended by signal 11").because("the first try ended so, too");
//! assert!(failure.needs_restart() && failure.to_string().starts_with("crash: ended by signal 11"));
//! assert!(!Failure::new(FailureKind::Compile, "no such layout").needs_restart());
//! ```

use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

open_enum! {
    /// Why a candidate gave no sample.
    pub enum FailureKind {
        /// The compiler refused the program.
        Compile = "compile",
        /// The compiler cannot read the program, because another version wrote it or it is damaged.
        Unreadable = "unreadable",
        /// The worker process died.
        Crash = "crash",
        /// No answer within the limit.
        Timeout = "timeout",
        /// The worker exceeded its memory limit.
        Memory = "memory",
        /// The worker's answer was invalid.
        Protocol = "protocol",
        /// The device returned an error.
        Execute = "execute",
        /// The program does not take the recorded arguments.
        Signature = "signature",
        /// The program needs a custom call that this worker has no handler for.
        CustomCall = "custom-call",
        /// Outputs differ from the baseline's.
        WrongOutput = "wrong-output",
        /// The baseline's outputs have no finite element: equality with them proves nothing.
        NotFinite = "not-finite",
        /// The baseline gave no outputs, although its program has results: there is nothing to compare.
        NoOutputs = "no-outputs",
        /// There is no program and this timer cannot build one.
        NoProgram = "no-program",
        /// The worker could not be started, or the device is missing.
        Device = "device",
        /// Its samples are not times: zero, negative or none.
        NoTime = "no-time",
        /// The profile of a round has no execution at all.
        NoExecutions = "no-executions",
    }
}

/// A failure with its reason in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// One line: what failed, where, and the end of the worker's stderr if that helps.
    pub message: String,
}

impl Failure {
    /// A failure from its parts.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The same with a reason; a worker's last output stays last.
    #[must_use]
    pub fn because(self, why: &str) -> Self {
        let message = match self.message.split_once("; its stderr: ") {
            Some((what, words)) => format!("{what}, {why}; its stderr: {words}"),
            None => format!("{}, {why}", self.message),
        };
        Self { message, ..self }
    }

    /// Whether the measuring worker is dead or untrustworthy, so that it must be restarted before the next call.
    pub fn needs_restart(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Crash
                | FailureKind::Timeout
                | FailureKind::Memory
                | FailureKind::Protocol
                | FailureKind::Execute
                | FailureKind::Device
                | FailureKind::NoExecutions
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_later_version_stays_what_it_is() {
        let stored = r#"{"kind":"meteor","message":"it struck"}"#;
        let failure: Failure = serde_json::from_str(stored).unwrap();
        assert_eq!(failure.kind, FailureKind::Other("meteor".into()));
        assert_eq!(serde_json::to_string(&failure).unwrap(), stored);
        assert_eq!((failure.to_string(), failure.needs_restart()), ("meteor: it struck".into(), false));
        assert_eq!(FailureKind::from("crash"), FailureKind::Crash);
    }
}
