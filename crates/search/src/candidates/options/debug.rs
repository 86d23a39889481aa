//! The options of XLA's `DebugOptions`, by number: their names, and what JAX sends in each.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

/// `candidates/options/debug_options.json`, which `debug_options.py` beside it writes.
const FILE: &str = include_str!("../../../../../candidates/options/debug_options.json");

/// A field of `DebugOptions` in the versions of jaxlib that were asked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct DebugOption {
    /// Its number.
    pub number: u32,
    /// Its name, and the earlier ones.
    pub names: Vec<String>,
    /// What it holds.
    pub kind: DebugOptionKind,
    /// What JAX sends: each value that some version has as its default.
    pub defaults: Vec<SentValue>,
    /// Whether it only writes files, logs, keeps what was compiled or says where a tool is: the program is the same without it.
    pub aside: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugOptionKind {
    /// A boolean, a number, or values of an enumeration.
    Number,
    /// A text.
    Text,
    /// A message.
    Message,
}

/// A value as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentValue {
    /// A varint, or the bits of a fixed-width number.
    Number(u64),
    /// Length-delimited bytes.
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for SentValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored {
            Number(u64),
            Bytes { hex: String },
        }
        match Stored::deserialize(from)? {
            Stored::Number(number) => Ok(Self::Number(number)),
            Stored::Bytes { hex } => {
                let digits = hex.as_bytes().chunks(2);
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                let bytes: Option<Vec<u8>> = digits.map(byte).collect();
                bytes.map(Self::Bytes).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))
            }
        }
    }
}

#[derive(Deserialize)]
struct File {
    fields: Vec<DebugOption>,
}

static KNOWN: LazyLock<BTreeMap<u32, DebugOption>> = LazyLock::new(|| {
    // it is valid, which a test checks
    let file = serde_json::from_str(FILE).unwrap_or(File { fields: Vec::new() });
    file.fields.into_iter().map(|field| (field.number, field)).collect()
});

impl DebugOption {
    /// The field with this number.
    pub fn numbered(number: u32) -> Option<&'static Self> {
        KNOWN.get(&number)
    }

    /// The field with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.values().find(|field| field.names.iter().any(|known| known == name))
    }

    /// Its present name.
    pub fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_every_field_once() {
        let file: File = serde_json::from_str(FILE).unwrap();
        assert!(file.fields.len() > 300 && file.fields.is_sorted_by(|one, next| one.number < next.number));
        assert!(file.fields.iter().all(|field| !field.names.is_empty()));
        // openxla/xla, xla/xla.proto
        for (number, name) in [(30, "xla_disable_hlo_passes"), (109, "xla_dump_to"), (99, "xla_cpu_enable_fast_math")] {
            assert_eq!(DebugOption::numbered(number), DebugOption::named(name));
            assert_eq!(DebugOption::named(name).unwrap().name(), name);
        }
        let cuda = DebugOption::named("xla_gpu_cuda_data_dir").unwrap();
        assert_eq!(cuda.defaults, [SentValue::Bytes(b"./cuda_sdk_lib".to_vec())]);
        assert_eq!(DebugOption::named("xla_backend_optimization_level").unwrap().defaults, [SentValue::Number(3)]);
        assert!(DebugOption::numbered(1).is_none() && DebugOption::named("xla_none").is_none());
    }
}
