//! What the structure of a module shows besides its labels.

use super::graph::Head;
use super::sites::Resolved;

/// The module and its call sites.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    pub(crate) head: Head,
    pub(crate) resolved: Resolved,
}
