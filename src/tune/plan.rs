//! What is to be tuned.

use std::sync::Arc;

use crate::hlo::FoundLabel;
use crate::registry::Invocation;

/// One invocation to tune and how it came here.
#[derive(Debug, Clone)]
pub struct PlannedInvocation {
    /// What was recorded.
    pub invocation: Arc<Invocation>,
    /// The module's labels that it stands for.
    pub labels: Vec<FoundLabel>,
    /// How they were matched, one phrase.
    pub how: String,
    /// What to know about the match, such as another device's recording.
    pub flags: Vec<String>,
}
