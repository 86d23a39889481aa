//! A worker's answer: a result or an error.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, FailureKind};
use crate::timer::protocol::lines::one_line;

/// A line from a worker: a result or an error, never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Response {
    /// The request's id; null for a line whose request could not be read.
    pub id: Option<u64>,
    /// The result of the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why it failed; the worker continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WireFailure>,
}

/// A failure on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WireFailure {
    /// A [`FailureKind`], `protocol` if the request was wrong; an unknown one counts as `protocol`.
    pub kind: String,
    /// One line.
    pub message: String,
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        let kind = match FailureKind::from(&*failure.kind) {
            FailureKind::Other(_) => FailureKind::Protocol,
            kind => kind,
        };
        Self::new(kind, one_line(&failure.message, 2000))
    }
}

impl From<Failure> for WireFailure {
    fn from(failure: Failure) -> Self {
        Self { kind: failure.kind.to_string(), message: failure.message }
    }
}
