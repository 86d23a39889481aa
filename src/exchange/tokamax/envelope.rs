//! What an `AutotuningResult` holds besides its calls, such as the version of the Tokamax that wrote it.

use serde_json::value::RawValue;

use crate::exchange::json_text::{Members, compact, quoted};

/// The two members that every version has. An envelope holds their places.
const KNOWN: [&str; 2] = ["device_kind", "data"];
/// The envelope of a result without other members.
const PLAIN: &str = r#"{"device_kind":null,"data":null}"#;

/// All members of a result in their order, without the values of the known ones; `None` if there are no others.
pub(super) fn envelope_of(members: &[(String, &RawValue)]) -> Option<String> {
    let member = |(name, value): &(String, &RawValue)| match KNOWN.contains(&name.as_str()) {
        true => format!("{}:null", quoted(name)),
        false => format!("{}:{}", quoted(name), compact(value.get())),
    };
    let envelope = format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","));
    (envelope != PLAIN).then_some(envelope)
}

/// A result in its envelope: `kind` and `data` are JSON.
pub(super) fn result_in(envelope: Option<&str>, kind: &str, data: &str) -> String {
    let envelope = envelope.unwrap_or(PLAIN);
    let Members(members) = serde_json::from_str(envelope).unwrap_or_else(|_| Members(Vec::new()));
    let member = |(name, value): &(String, &RawValue)| {
        let value = match name.as_str() {
            "device_kind" => kind,
            "data" => data,
            _ => value.get(),
        };
        format!("{}:{value}", quoted(name))
    };
    format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_members_keep_order_and_spelling() {
        for text in [
            r#"{"device_kind":"cpu","data":[1],"tokamax_version":"0.0.17"}"#,
            r#"{"a":1e-06,"data":[1],"b":{"c":"\u00e9","data":2},"device_kind":"cpu"}"#,
            r#"{"device_kind":"cpu","data":[1]}"#,
        ] {
            let Members(members) = serde_json::from_str(text).unwrap();
            let envelope = envelope_of(&members);
            assert_eq!(envelope.is_none(), members.len() == 2, "{text}");
            assert_eq!(result_in(envelope.as_deref(), "\"cpu\"", "[1]"), text);
        }
    }
}
