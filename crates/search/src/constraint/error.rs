//! What is wrong with a constraint, and where in its text.

/// A constraint that cannot be compiled, or not be evaluated with these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ConstraintError {
    /// What is wrong, as a fragment.
    pub message: String,
    /// The character of the text where it is, from 0.
    pub at: usize,
}

impl ConstraintError {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), at }
    }
}
