//! Which custom call lacks a handler, from a plugin's error message, because the API has no error code for it.

/// XLA's messages up to the target's name: `xla/service/cpu/thunk_emitter.cc`, `xla/service/gpu/thunk_emitter.cc` and
/// `xla/ffi/ffi_registry.cc`.
const BEFORE_TARGET: [&str; 2] = ["custom call to ", "No FFI handler registered for "];

/// The target named in the message, if it is about a custom call without a handler.
pub(super) fn unhandled_target(message: &str) -> Option<&str> {
    let missing = message.contains("No registered implementation") || message.contains("No FFI handler registered");
    let rest = BEFORE_TARGET
        .iter()
        .find_map(|before| message.find(before).and_then(|at| message.get(at + before.len()..)))
        .filter(|_| missing)?;
    let target = rest.split_whitespace().next()?.trim_matches(['"', '`', '\'', ';', ',']);
    (!target.is_empty()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_target() {
        // messages of three CPU plugins and of XLA's GPU compiler
        for (message, target) in [
            ("No registered implementation for untyped custom call to lapack_sgetrf for Host", Some("lapack_sgetrf")),
            (
                "No FFI handler registered for lapack_spotrf_ffi on a platform Host (canonical host)",
                Some("lapack_spotrf_ffi"),
            ),
            (
                "No registered implementation for custom call to \"tpu_custom_call\" for platform \"CUDA\"",
                Some("tpu_custom_call"),
            ),
            ("a custom call to arms", None),
            ("failed to verify", None),
        ] {
            assert_eq!(unhandled_target(message), target, "{message}");
        }
    }
}
