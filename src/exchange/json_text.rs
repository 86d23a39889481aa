//! JSON as text: members in their order and numbers in their spelling, both of which a parsed value loses.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::canonical_json;

/// The members of an object in the order of the text; a name may come twice.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

/// A string as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// The canonical spelling of JSON; `None` if it is not JSON.
pub(super) fn canonical(json: &str) -> Option<String> {
    serde_json::from_str::<Value>(json).ok().map(|value| canonical_json(&value))
}

/// The same JSON without blanks.
pub(super) fn compact(json: &str) -> String {
    respaced(json, None)
}

/// The same JSON with each member and item on a line of its own, two blanks a level, as Python's tools write it.
pub(super) fn indented(json: &str) -> String {
    respaced(json, Some(2))
}

/// Writes valid JSON with different whitespace; everything else keeps its spelling.
fn respaced(json: &str, indent: Option<usize>) -> String {
    let mut out = String::with_capacity(json.len());
    let mut depth = 0_usize;
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let (mut in_string, mut escaped, mut just_opened) = (false, false, false);
    for character in json.chars() {
        if in_string {
            out.push(character);
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        if character.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(character, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        // an empty object stays on its line
        if just_opened != closes {
            line(&mut out, depth);
        }
        just_opened = false;
        out.push(character);
        match character {
            '"' => in_string = true,
            '{' | '[' => {
                depth += 1;
                just_opened = true;
            }
            ',' => line(&mut out, depth),
            ':' if indent.is_some() => out.push(' '),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Python 3.11: json.dumps(json.loads(TEXT), indent=2) and with separators=(",", ":")
    #[test]
    fn blanks_are_those_of_python() {
        let text = r#" { "a" : [ 1.50, {} , [ ], "x \" , : \\" ], "b":{"c" : null} } "#;
        let compacted = r#"{"a":[1.50,{},[],"x \" , : \\"],"b":{"c":null}}"#;
        let lines = "{\n  \"a\": [\n    1.50,\n    {},\n    [],\n    \"x \\\" , : \\\\\"\n  ],\
                     \n  \"b\": {\n    \"c\": null\n  }\n}";
        assert_eq!(compact(text), compacted);
        assert_eq!(indented(text), lines);
        assert_eq!(compact(lines), compacted);
        assert_eq!(indented(&compact(lines)), lines);
    }

    #[test]
    fn members_keep_order_spelling_and_repetition() {
        let Members(members) = serde_json::from_str(r#"{"b": 1e-6, "a": 2, "b": 3.0}"#).unwrap();
        let found: Vec<(&str, &str)> = members.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
        assert_eq!(found, [("b", "1e-6"), ("a", "2"), ("b", "3.0")]);
    }
}
