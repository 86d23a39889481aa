//! In what two configs differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::{Config, canonical_json};

/// Returns the parameters in which two configs differ, as each has them.
pub(super) fn differences(ours: &Config, theirs: &Config) -> (String, String) {
    let (ours, theirs) = (flat(ours), flat(theirs));
    let text = |of: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let changed = of.iter().filter(|(name, value)| other.get(*name) != Some(value));
        let parts: Vec<String> = changed.map(|(name, value)| format!("{name}={value}")).collect();
        if parts.is_empty() { "without them".to_owned() } else { parts.join(" ") }
    };
    if ours == theirs {
        return ("the baseline".to_owned(), "the same".to_owned());
    }
    (text(&ours, &theirs), text(&theirs, &ours))
}

/// Returns each parameter by its path, with its value as text.
pub(super) fn flat(config: &Config) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    let mut open: Vec<(String, &Value)> = config.as_map().iter().map(|(name, value)| (name.clone(), value)).collect();
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                open.extend(fields.iter().map(|(inner, value)| (format!("{name}.{inner}"), value)));
            }
            Value::String(text) => drop(flat.insert(name, text.clone())),
            other => drop(flat.insert(name, canonical_json(other))),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let config = |text: &str| serde_json::from_str::<Config>(text).unwrap();
        let ours = config(r#"{"backend":"any","fwd":{"q":256,"kv":512}}"#);
        let theirs = config(r#"{"backend":"any","fwd":{"q":128,"kv":512}}"#);
        assert_eq!(differences(&ours, &theirs), ("fwd.q=256".to_owned(), "fwd.q=128".to_owned()));
        assert_eq!(differences(&ours, &ours).0, "the baseline");
    }
}
