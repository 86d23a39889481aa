//! An error with its exit code: what `main` prints in one line.

use std::fmt;
use std::io;

use crate::analysis::CaptureError;
use crate::analysis::trace::TraceFileError;
use crate::cache::StoreError;
use crate::exchange::ExchangeError;
use crate::gate::DeviceNameError;
use crate::ledger::{LedgerError, StoredError};
use crate::remote::RemoteError;
use crate::samples::LogError;
use crate::signature::SignatureError;
use crate::tune::TuneError;

use super::exit;

/// One line for stderr and the code to exit with.
#[derive(Debug)]
pub(super) struct Fault {
    /// The exit code.
    pub(super) code: u8,
    /// The line; empty if there is nothing to report.
    pub(super) message: String,
}

impl Fault {
    /// A fault from its parts; line breaks become spaces.
    pub(super) fn new(code: u8, error: impl fmt::Display) -> Self {
        let message = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { code, message }
    }

    /// An input that cannot be used.
    pub(super) fn input(error: impl fmt::Display) -> Self {
        Self::new(exit::BAD_INPUT, error)
    }

    /// A device that cannot be used.
    pub(super) fn device(error: impl fmt::Display) -> Self {
        Self::new(exit::DEVICE_TROUBLE, error)
    }
}

impl From<io::Error> for Fault {
    /// For writing to stdout. A reader that closed the pipe, as `head` does, needs no message, but the exit code must
    /// show that the output was cut short.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { code: exit::BAD_INPUT, message: String::new() }
        } else {
            Self::new(exit::BAD_INPUT, format!("cannot write to stdout: {error}"))
        }
    }
}

impl From<SignatureError> for Fault {
    fn from(error: SignatureError) -> Self {
        match error {
            SignatureError::Io { .. }
            | SignatureError::NotAKey { .. }
            | SignatureError::Exposed { .. }
            | SignatureError::Command { .. } => Self::input(error),
            _ => Self::new(exit::CACHE_TROUBLE, error),
        }
    }
}

impl From<RemoteError> for Fault {
    fn from(error: RemoteError) -> Self {
        let message = error.to_string();
        match error {
            RemoteError::Address { .. } | RemoteError::NotBuilt { .. } | RemoteError::Plain { .. } => {
                Self::new(exit::USAGE, error)
            }
            RemoteError::ReadOnly { .. } => Self::new(exit::USAGE, error),
            RemoteError::Nothing { .. } | RemoteError::Replayed { .. } => Self::new(exit::NOTHING_MATCHED, error),
            RemoteError::Signature(error) => error.into(),
            RemoteError::NotPublished { source, .. } => Self::new(Self::from(*source).code, message),
            error => Self::new(exit::CACHE_TROUBLE, error),
        }
    }
}

impl From<CaptureError> for Fault {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::NotBuilt(_) | CaptureError::TwoKinds | CaptureError::NotOfEjkernel(_) => {
                Self::new(exit::USAGE, error)
            }
            _ => Self::input(error),
        }
    }
}

impl From<DeviceNameError> for Fault {
    fn from(error: DeviceNameError) -> Self {
        match error {
            DeviceNameError::Store(error) => error.into(),
            DeviceNameError::None { .. } => Self::new(exit::NOTHING_MATCHED, error),
            _ => Self::new(exit::USAGE, error),
        }
    }
}

macro_rules! faults {
    ($($error:ty => $code:ident),+) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::new(exit::$code, error)
            }
        }
    )+};
}
faults!(LedgerError => CACHE_TROUBLE, StoreError => CACHE_TROUBLE);
faults!(LogError => CACHE_TROUBLE, TuneError => CACHE_TROUBLE);
faults!(StoredError => BAD_INPUT, ExchangeError => BAD_INPUT, TraceFileError => BAD_INPUT);
