//! The names that a kernel may be known by.

/// Longer names are not looked at.
const MAX_NAME_BYTES: usize = 1024;
/// Scopes that are looked at, the innermost first.
const MAX_SCOPES: usize = 16;

/// An instruction's name without the number that makes it unique: `gmm.2` is `gmm`.
pub(super) fn base(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((base, number)) if !base.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

/// The scopes of `jit(f)/transpose(jvp(g))/h`, the innermost first and without what JAX wraps around them.
pub(super) fn scopes(scope: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in scope.rsplit(['/', ';']).take(MAX_SCOPES) {
        let inner = part.rsplit('(').next().unwrap_or(part);
        let inner = inner.split(')').next().unwrap_or(inner);
        for name in [part, inner] {
            if !name.is_empty() && name.len() <= MAX_NAME_BYTES && names.iter().all(|known| known != name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_wrappers_are_taken_off() {
        let of = |name| base(name);
        assert_eq!(
            [of("gmm.2"), of("pallas_call"), of("a.b"), of(".3"), of("x.")],
            ["gmm", "pallas_call", "a.b", ".3", "x"]
        );
        assert_eq!(scopes("jit(f)/transpose(jvp(g))/h"), ["h", "transpose(jvp(g))", "g", "jit(f)", "f"]);
        assert_eq!(scopes(""), [] as [&str; 0]);
        assert_eq!(scopes(&"x".repeat(MAX_NAME_BYTES + 1)).len(), 0);
    }
}
