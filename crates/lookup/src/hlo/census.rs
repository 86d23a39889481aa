//! Statistics of a module's names, for the diagnosis of missing labels.

use std::collections::BTreeSet;

use super::escape::Escapes;

/// Names longer than this lose their beginning when XLA inlines a call.
pub(crate) const LONG_NAME_BYTES: usize = 1024;

/// Modules up to this size are held in memory, for their structure and the digest.
pub(crate) const STRUCTURE_BYTES: u64 = 1 << 28;

const MAX_HINTS: usize = 4096;

/// Counts over the `op_name`s or locations of a module.
#[derive(Debug, Default, Clone)]
pub(crate) struct Census {
    /// Names seen.
    pub(crate) names: u64,
    /// Names longer than [`LONG_NAME_BYTES`].
    pub(crate) long: u64,
    /// Names that begin inside a scope (`while/body/…`), not at a `jit(…)`.
    pub(crate) relative: u64,
    /// Operations that mangled instruction names (`%ejkernel_ops_rms_norm.3`) hint at.
    pub(crate) hints: BTreeSet<String>,
}

impl Census {
    /// Counts one name, as its form spells it.
    pub(crate) fn name(&mut self, name: &[u8], escapes: Escapes) {
        self.names += 1;
        let is_long = name.len() > LONG_NAME_BYTES
            && super::escape::Unescaper::new(name, escapes).take(LONG_NAME_BYTES + 1).count() > LONG_NAME_BYTES;
        self.long += u64::from(is_long);
        self.relative += u64::from(
            ["while/", "cond/", "body/", "closed_call/"].iter().any(|scope| name.starts_with(scope.as_bytes())),
        );
    }

    /// Looks for remains of a label in an instruction's name.
    pub(crate) fn instruction(&mut self, name: &str) {
        let Some((_, hint)) = name.split_once("ejkernel_ops_") else { return };
        let hint = hint.split('.').next().unwrap_or_default().trim_matches('_');
        let hint: String = hint.chars().take(40).collect();
        if !hint.is_empty() && self.hints.len() < MAX_HINTS {
            self.hints.insert(hint);
        }
    }
}
