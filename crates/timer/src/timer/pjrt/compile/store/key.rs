//! The key of a kept executable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, FieldHasher};

/// What an executable depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecutableKey {
    pub(crate) program: Digest,
    pub(crate) format: String,
    /// In the plugin's format.
    pub(crate) compile_options: Vec<u8>,
    pub(crate) plugin: Digest,
    /// Identity of the device on which it was compiled.
    pub(crate) device: String,
    pub(crate) device_index: usize,
    pub(crate) cpu_features: String,
    pub(crate) xla_flags: Vec<String>,
    /// The target, if it was compiled without a device, as the plugin receives it: a topology's name, or the text of a
    /// target's config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// Names and digests of what the plugin compiles with but does not include, such as `ptxas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) toolchain: Option<String>,
    /// Compiler options of this program alone, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) overrides: BTreeMap<String, String>,
    /// Digest of the compile options that the program has where it is used, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_options: Option<Digest>,
    /// Number of the copy, if the same program is compiled more than once.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(crate) copy: u32,
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_first(copy: &u32) -> bool {
    *copy == 0
}

impl ExecutableKey {
    pub(super) fn to_digest(&self) -> Digest {
        // the label stays the same as long as old keys keep their meaning
        let mut hasher = FieldHasher::new("pjrt-executable-v1");
        hasher
            .field(self.program.as_bytes())
            .field(self.format.as_bytes())
            .field(&self.compile_options)
            .field(self.plugin.as_bytes())
            .field(self.device.as_bytes())
            .field(&(self.device_index as u64).to_le_bytes())
            .field(self.cpu_features.as_bytes());
        for flag in &self.xla_flags {
            hasher.field(flag.as_bytes());
        }
        // non-default fields follow the flags, behind a name that no flag can have
        for (name, value) in [("\0target", &self.target), ("\0toolchain", &self.toolchain)] {
            if let Some(value) = value {
                hasher.field(name.as_bytes()).field(value.as_bytes());
            }
        }
        for (name, value) in &self.overrides {
            hasher.field(b"\0override").field(name.as_bytes()).field(value.as_bytes());
        }
        if let Some(base) = &self.base_options {
            hasher.field(b"\0base options").field(base.as_bytes());
        }
        if self.copy > 0 {
            hasher.field(b"\0copy").field(&self.copy.to_le_bytes());
        }
        hasher.finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn key() -> ExecutableKey {
        ExecutableKey {
            program: Digest::of(b"program"),
            format: "mlir".into(),
            compile_options: vec![1, 2],
            plugin: Digest::of(b"plugin"),
            device: "cpu:cpu".into(),
            device_index: 0,
            cpu_features: "avx2 fma".into(),
            xla_flags: Vec::new(),
            target: None,
            toolchain: None,
            overrides: BTreeMap::new(),
            base_options: None,
            copy: 0,
        }
    }

    #[test]
    fn a_key_of_before_has_the_name_of_before() {
        // computed by hand, from the fields that existed first: length and bytes of each
        let key = ExecutableKey { xla_flags: vec!["--xla_a=1".into(), "--xla_b".into()], ..key() };
        assert_eq!(key.to_digest().to_string(), "410750283afb9aacb68c138058cff2e8cf31fc8b31174b4e3aff6af44028d727");
    }
}
