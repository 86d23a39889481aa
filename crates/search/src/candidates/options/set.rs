//! A set of options with their values, with which a program is compiled.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::printable::printable;

/// Maximum number of options in one set.
const MAX_OPTIONS: usize = 256;
const MAX_NAME_BYTES: usize = 128;
const MAX_VALUE_BYTES: usize = 4096;

/// The option whose values are comma-separated lists of passes; two such lists are joined.
const LIST_OF_PASSES: &str = "xla_disable_hlo_passes";

/// Options of a compiler by name, each with its value: a boolean, a number or a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptionSet {
    values: BTreeMap<String, Value>,
}

/// An invalid option of a compiler, or two conflicting ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An invalid name.
    #[error(
        "`{name}` is not an option's name: at most {MAX_NAME_BYTES} of `a` to `z`, digits and `_`, without leading \
         dashes"
    )]
    Name {
        /// The name, safe for a terminal.
        name: String,
    },
    /// An invalid value.
    #[error("`{name}`: the value is {what}; give true, false, a number or a string of at most {MAX_VALUE_BYTES} bytes")]
    Value {
        /// The option.
        name: String,
        /// What the value is.
        what: &'static str,
    },
    /// Too many options.
    #[error("{count} options: at most {MAX_OPTIONS} can be set together")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// Two values of one option.
    #[error("`{name}` is set to `{first}` and to `{second}`: choose one")]
    Conflict {
        /// The option.
        name: String,
        /// Its value, safe for a terminal.
        first: String,
        /// The other one.
        second: String,
    },
}

impl OptionSet {
    /// The options of a JSON object, such as `{"xla_cpu_prefer_vector_width": 512}`.
    ///
    /// # Errors
    /// A name that no option has, a value that is neither a boolean nor a number nor a text, or too many of them.
    pub fn from_config(config: &Config) -> Result<Self, OptionError> {
        let mut set = Self::default();
        if config.as_map().len() > MAX_OPTIONS {
            return Err(OptionError::TooMany { count: config.as_map().len() });
        }
        for (name, value) in config.as_map() {
            set.set(name, value)?;
        }
        Ok(set)
    }

    /// The same as a JSON object.
    pub fn to_config(&self) -> Config {
        Config::new(self.values.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
    }

    /// Names and values as XLA reads overrides: `True`, `512`, `0.5`, a text.
    pub fn overrides(&self) -> BTreeMap<String, String> {
        self.values.iter().map(|(name, value)| (name.clone(), spelled(value))).collect()
    }

    /// Both sets in one. Lists of passes are joined.
    ///
    /// # Errors
    /// If an option has two values, or there are too many options.
    pub fn with(&self, other: &Self) -> Result<Self, OptionError> {
        let mut set = self.clone();
        for (name, value) in &other.values {
            match set.values.get(name) {
                Some(known) if known == value => {}
                Some(Value::String(known)) if name == LIST_OF_PASSES => {
                    let joined = Value::String(joined(known, &spelled(value)));
                    set.set(name, &joined)?;
                }
                Some(known) => {
                    let [first, second] = [known, value].map(|value| printable(&spelled(value)));
                    return Err(OptionError::Conflict { name: name.clone(), first, second });
                }
                None => set.set(name, value)?,
            }
        }
        match set.values.len() {
            count if count > MAX_OPTIONS => Err(OptionError::TooMany { count }),
            _ => Ok(set),
        }
    }

    /// The names and the values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value of an option, if it is set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets one option, checked; another value of the same option is replaced.
    pub(super) fn set(&mut self, name: &str, value: &Value) -> Result<(), OptionError> {
        let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !is_name || name.is_empty() || name.len() > MAX_NAME_BYTES {
            let short: String = name.chars().take(MAX_NAME_BYTES).collect();
            return Err(OptionError::Name { name: printable(&short) });
        }
        let what = match value {
            Value::Bool(_) | Value::Number(_) => None,
            Value::String(text) if text.len() > MAX_VALUE_BYTES => Some("too long"),
            Value::String(text) if text.contains(char::is_control) => Some("a string with control characters"),
            Value::String(_) => None,
            Value::Null => Some("`null`"),
            Value::Array(_) => Some("a list"),
            Value::Object(_) => Some("an object"),
        };
        match what {
            Some(what) => Err(OptionError::Value { name: name.to_owned(), what }),
            None => {
                self.values.insert(name.to_owned(), value.clone());
                Ok(())
            }
        }
    }
}

/// In the form of command-line options: `--a=True --b=512`.
impl fmt::Display for OptionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.values.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(f, "{blank}{name}={}", printable(&spelled(value)))?;
        }
        Ok(())
    }
}

/// A value as XLA reads it from a text. Booleans have capitals: it refuses others.
pub fn spelled(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Two lists of passes as one: each pass once and in order, so that equal sets are equal texts.
fn joined(one: &str, other: &str) -> String {
    let mut passes: Vec<&str> = one.split(',').chain(other.split(',')).filter(|pass| !pass.is_empty()).collect();
    passes.sort_unstable();
    passes.dedup();
    passes.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Result<OptionSet, OptionError> {
        OptionSet::from_config(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn values_are_spelled_as_xla_reads_them() {
        let config = json!({"a": true, "b": false, "c": 512, "d": 0.5, "e": "x,y", "f": "", "g": -3});
        let set = set(config.clone()).unwrap();
        let spelled: Vec<(String, String)> = set.overrides().into_iter().collect();
        let wanted = [("a", "True"), ("b", "False"), ("c", "512"), ("d", "0.5"), ("e", "x,y"), ("f", ""), ("g", "-3")];
        assert_eq!(spelled, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(serde_json::to_value(set.to_config()).unwrap(), config);
        assert_eq!(set.to_string(), "a=True b=False c=512 d=0.5 e=x,y f= g=-3");
    }

    #[test]
    fn what_is_no_option_is_an_error() {
        let many: Map<String, Value> = (0..300).map(|number| (format!("o{number}"), json!(1))).collect();
        for (config, message) in [
            (json!({"--xla_a": true}), "`--xla_a` is not an option's name"),
            (json!({"": 1}), "`` is not an option's name"),
            (json!({"xla\u{1b}a": 1}), "`xla\\u{1b}a` is not an option's name"),
            (json!({"x".repeat(129): 1}), "is not an option's name"),
            (json!({"a": null}), "`a`: the value is `null`; give true"),
            (json!({"a": [1]}), "`a`: the value is a list"),
            (json!({"a": {}}), "`a`: the value is an object"),
            (json!({"a": "x\0y"}), "`a`: the value is a string with control characters"),
            (json!({"a": "x".repeat(4097)}), "`a`: the value is too long"),
            (Value::Object(many), "300 options: at most 256"),
        ] {
            let error = set(config).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn sets_are_combined() {
        let passes = |passes: &str| set(json!({"xla_disable_hlo_passes": passes})).unwrap();
        let width = |width: u32| set(json!({"xla_cpu_prefer_vector_width": width})).unwrap();
        let both = passes("fusion,cse").with(&passes("dce,cse")).unwrap().with(&width(512)).unwrap();
        let other = width(512).with(&passes("dce,cse")).unwrap().with(&passes("fusion")).unwrap();
        assert_eq!(both.overrides()["xla_disable_hlo_passes"], "cse,dce,fusion");
        assert_eq!(both, other, "in any order");
        assert_eq!(both.with(&both).unwrap(), both);
        assert_eq!(passes("").with(&passes("dce")).unwrap(), passes("dce"));
        let error = width(256).with(&width(512)).unwrap_err().to_string();
        assert_eq!(error, "`xla_cpu_prefer_vector_width` is set to `256` and to `512`: choose one");
        let [left, right] = [0, 200].map(|from| {
            let options = (from..from + 200).map(|number| (format!("o{number}"), json!(1)));
            set(Value::Object(options.collect())).unwrap()
        });
        assert_eq!(left.with(&right).unwrap_err(), OptionError::TooMany { count: 400 });
    }
}
