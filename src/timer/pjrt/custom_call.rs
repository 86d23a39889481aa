//! Which custom call a plugin has no handler for, from its error message: the API has no code for it.

/// The target named in the message, where it speaks of a custom call without a handler.
pub(crate) fn unhandled_target(_message: &str) -> Option<String> {
    None
}
