//! Why a look-up found nothing.

use std::fmt;

use crate::call::{Call, Direction};

/// Why a look-up found nothing; printed, it is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissReason {
    /// Nothing is cached for the operation.
    Operation {
        /// The operation.
        op_id: String,
    },
    /// The operation is cached in other versions only.
    Version {
        /// The operation.
        op_id: String,
        /// The operations that differ from it in their version alone.
        cached: Vec<String>,
    },
    /// The operation is cached for this device, but not this call.
    Call {
        /// The call.
        call: Call,
        /// How many other calls are cached.
        others: usize,
    },
    /// The call is cached for another device.
    Device {
        /// The call.
        call: Call,
        /// How that device differs, and which match mode would accept it.
        difference: String,
    },
    /// The call is cached, but all that decided it was replayed samples.
    Replayed {
        /// The call.
        call: Call,
    },
    /// The call is cached in another direction.
    Direction {
        /// The call.
        call: Call,
        /// The direction that it was tuned in.
        tuned: Direction,
    },
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { op_id } => write!(f, "nothing is cached for `{op_id}`"),
            Self::Version { op_id, cached } => {
                write!(f, "`{op_id}` is cached in other versions only: {}", cached.join(", "))
            }
            Self::Call { call: Call { op_id, call_key }, others: 1 } => {
                write!(f, "`{op_id}` is cached for another call key, not for `{call_key}`")
            }
            Self::Call { call: Call { op_id, call_key }, others } => {
                write!(f, "`{op_id}` is cached for {others} other call keys, not for `{call_key}`")
            }
            Self::Device { call, difference } => {
                write!(f, "`{call}` is cached, but not for this device: {difference}")
            }
            Self::Replayed { call } => {
                write!(f, "`{call}` is cached, but decided by replayed samples, not by runs on this device")
            }
            Self::Direction { call, tuned } => {
                write!(f, "`{call}` is cached, but not for this device: tuned {tuned} only")
            }
        }
    }
}
