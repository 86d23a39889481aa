//! A kernel's configuration: a JSON object in one canonical spelling, so that equal configs are equal bytes.
//!
//! ```
//! use autotune_lowered_lookup::config::Config;
//!
//! let config: Config = serde_json::from_str(r#"{"stages": 3, "forward": {"block": 128}}"#)?;
//! assert_eq!(config.as_str(), r#"{"forward":{"block":128},"stages":3}"#);
//! assert_eq!(config.to_brief(), "forward.block=128 stages=3");
//! let same: Config = serde_json::from_str(r#"{"forward": {"block": 128}, "stages": 3}"#)?;
//! assert_eq!(config, same);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// One assignment of values to a kernel's parameters, such as `{"block_m":64,"block_n":128}`.
///
/// Compared, ordered and hashed by its canonical text: keys sorted, no blanks.
#[derive(Debug, Clone)]
pub struct Config {
    fields: Map<String, Value>,
    canonical: String,
}

impl Config {
    /// A config from a JSON object.
    pub fn new(fields: Map<String, Value>) -> Self {
        let canonical = canonical_json(&Value::Object(fields.clone()));
        Self { fields, canonical }
    }

    /// The parameters and their values.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The canonical JSON text.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// The value of one parameter.
    pub fn get(&self, parameter: &str) -> Option<&Value> {
        self.fields.get(parameter)
    }

    /// A form for tables: `block_m=64 block_n=128`, nested parameters joined with a point.
    pub fn to_brief(&self) -> String {
        let mut parts = Vec::new();
        for (name, value) in &self.fields {
            brief_into(name, value, &mut parts);
        }
        if parts.is_empty() { "{}".to_owned() } else { parts.join(" ") }
    }
}

fn brief_into(name: &str, value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (inner, value) in fields {
                brief_into(&format!("{name}.{inner}"), value, parts);
            }
        }
        Value::String(text) => parts.push(format!("{name}={text}")),
        other => parts.push(format!("{name}={}", canonical_json(other))),
    }
}

/// JSON with object keys sorted by their bytes at every depth and no blanks.
///
/// Numbers keep the spelling that `serde_json` gives them: `1` and `1.0` are different configs, as they are to a
/// kernel.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            text.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                if let Some(value) = fields.get(key) {
                    write_canonical(value, text);
                }
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Config {}

impl PartialOrd for Config {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Config {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.canonical.cmp(&other.canonical)
    }
}

impl Hash for Config {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter() {
        let parse = |text: &str| serde_json::from_str::<Config>(text).unwrap();
        let a = parse(r#"{"b": 1, "a": {"y": null, "x": [1, 2.5]}}"#);
        let b = parse(r#"{"a":{"x":[1,2.5],"y":null},"b":1}"#);
        assert_eq!(a, b);
        assert_eq!(a.as_str(), r#"{"a":{"x":[1,2.5],"y":null},"b":1}"#);
        assert_ne!(parse(r#"{"b":1}"#), parse(r#"{"b":1.0}"#));
        // a float's shortest text, as Python writes it, must survive a round trip: otherwise a config would change at
        // each reading
        for float in ["0.21982840135817558", "1.0715086071862673e301", "5e-324", "0.30000000000000004"] {
            let config = parse(&format!("{{\"x\":{float}}}"));
            assert_eq!(parse(config.as_str()), config);
            assert_eq!(config.get("x").and_then(Value::as_f64), float.parse().ok(), "{float}");
        }
        assert_eq!(parse(r#"{"m":64,"p":{"n":"x"},"e":{}}"#).to_brief(), "e={} m=64 p.n=x");
    }
}
