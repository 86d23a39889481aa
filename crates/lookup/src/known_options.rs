//! The options of compilers that are known: those of the lists that are tried, with the forms of their values, and the
//! fields of XLA's `DebugOptions`, with what JAX sends in each.
//!
//! ```
//! use autotune_lowered_lookup::known_options::{DebugOption, ListedValues};
//! use serde_json::json;
//!
//! let vector_width = ListedValues::named("xla_cpu_prefer_vector_width").ok_or("it is on a list")?;
//! assert!(vector_width.have(&json!(512)) && !vector_width.have(&json!("/etc/passwd")));
//! let field = DebugOption::named("xla_dump_to").ok_or("it is a field of DebugOptions")?;
//! assert!(field.aside, "it only writes");
//! assert!(ListedValues::named("xla_dump_to").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The lists of options that are tried.
const LISTS: [&str; 3] = [
    include_str!("../candidates/options/cpu.json"),
    include_str!("../candidates/options/cuda.json"),
    include_str!("../candidates/options/tpu.json"),
];

/// `candidates/options/debug_options.json`, which `debug_options.py` beside it writes.
const FILE: &str = include_str!("../candidates/options/debug_options.json");

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
    /// Whether it only writes files, logs, keeps what was compiled or says where a tool is: the program is the same
    /// without it.
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

/// The values of an option on a list.
#[derive(Debug, Default)]
pub struct ListedValues {
    switches: bool,
    numbers: bool,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct List {
    options: Vec<ListedOption>,
}

#[derive(Deserialize)]
struct ListedOption {
    name: String,
    values: Vec<Value>,
    #[serde(default)]
    with: Map<String, Value>,
}

static LISTED: LazyLock<BTreeMap<String, ListedValues>> = LazyLock::new(|| {
    let mut listed: BTreeMap<String, ListedValues> = BTreeMap::new();
    // each is valid, which a test of the space that they form checks
    let lists = LISTS.iter().filter_map(|text| serde_json::from_str::<List>(text).ok());
    for ListedOption { name, values, with } in lists.flat_map(|list| list.options) {
        let own = values.into_iter().map(|value| (name.clone(), value));
        for (name, value) in own.chain(with) {
            let values = listed.entry(name).or_default();
            match value {
                Value::Bool(_) => values.switches = true,
                Value::Number(_) => values.numbers = true,
                Value::String(text) => values.texts.push(text),
                Value::Null | Value::Array(_) | Value::Object(_) => {}
            }
        }
    }
    listed
});

impl ListedValues {
    /// The values of the option with this name, if it is on a list.
    pub fn named(name: &str) -> Option<&'static Self> {
        LISTED.get(name)
    }

    /// Whether it has values of this form, or this text.
    pub fn have(&self, value: &Value) -> bool {
        match value {
            Value::Bool(_) => self.switches,
            // as a flag, a boolean may be written as a number
            Value::Number(number) => {
                self.numbers || (self.switches && number.as_u64().is_some_and(|number| number < 2))
            }
            Value::String(text) => self.have_text(text),
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        }
    }

    /// The same of a text.
    pub fn have_text(&self, text: &str) -> bool {
        let is_switch = || ["true", "false"].contains(&text.to_ascii_lowercase().as_str());
        (self.switches && is_switch())
            || (self.numbers && text.parse::<f64>().is_ok_and(f64::is_finite))
            // XLA reads lists with commas
            || text.split(',').all(|part| self.texts.iter().any(|text| text == part))
    }
}

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
        assert!(LISTS.iter().all(|text| !serde_json::from_str::<List>(text).unwrap().options.is_empty()));
    }
}
