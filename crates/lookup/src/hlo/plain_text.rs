//! StableHLO text without locations, labels in metadata and the module's name.

use std::borrow::Cow;

/// Where MLIR prints what JAX's `set_xla_metadata` attached to an operation.
const FRONTEND_ATTRIBUTES: &str = "mhlo.frontend_attributes = {";
const PAYLOAD_MEMBER: &str = "xla_metadata_payload = ";

/// The symbol name at the start of a text, quotes included.
pub(crate) fn symbol(text: &str) -> &str {
    let end = match text.strip_prefix('"') {
        Some(quoted) => quoted.find('"').map_or(text.len(), |end| end + 2),
        None => {
            let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-');
            text.find(|c| !part(c)).unwrap_or(text.len())
        }
    };
    text.get(..end).unwrap_or(text)
}

pub(super) fn with_module_renamed(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix("module @") {
        Some(rest) => format!("module @module{}", rest.get(symbol(rest).len()..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The text without location aliases and trailing locations; strings are left as they are.
pub(super) fn without_locations(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut line_start = true;
    while let Some(byte) = rest.bytes().next() {
        if line_start && byte == b'#' {
            let (line, after) = rest.split_at(rest.find('\n').map_or(rest.len(), |end| end + 1));
            if is_location_alias(line) {
                rest = after;
                continue;
            }
        }
        line_start = byte == b'\n';
        let taken = match byte {
            b'"' => string_length(rest),
            b' ' if rest.starts_with(" loc(") => {
                let end = group_length(rest);
                rest = rest.get(end..).unwrap_or_default();
                continue;
            }
            // up to the next significant byte; never inside a character, since all of these are ASCII
            _ => {
                rest.bytes().skip(1).position(|b| matches!(b, b'"' | b' ' | b'\n' | b'#')).map_or(rest.len(), |n| n + 1)
            }
        };
        let (piece, after) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        line_start = line_start && piece.ends_with('\n');
        kept.push_str(piece);
        rest = after;
    }
    kept
}

/// The text without the payloads of XLA's metadata, which label calls, as MLIR prints it where there are none.
pub(super) fn without_payloads(text: &str) -> Cow<'_, str> {
    if !text.contains(PAYLOAD_MEMBER) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(FRONTEND_ATTRIBUTES) {
        kept.push_str(before);
        let (held, end) = members(after);
        let others: Vec<&str> = held.iter().copied().filter(|member| !member.starts_with(PAYLOAD_MEMBER)).collect();
        let (dictionary, after) = after.split_at_checked(end).unwrap_or((after, ""));
        rest = after;
        if others.len() == held.len() {
            kept.push_str(FRONTEND_ATTRIBUTES);
            kept.push_str(dictionary);
            continue;
        }
        if !others.is_empty() {
            kept.push_str(FRONTEND_ATTRIBUTES);
            kept.push_str(&others.join(", "));
            kept.push('}');
        } else if let Some(end) = kept.strip_suffix(", ").map(str::len) {
            kept.truncate(end);
        } else if let Some(after) = rest.strip_prefix(", ") {
            rest = after;
        } else if let (Some(before), Some(after)) = (kept.strip_suffix(" {"), rest.strip_prefix('}')) {
            // it was the only attribute
            let end = before.strip_suffix(" attributes").unwrap_or(before).len();
            kept.truncate(end);
            rest = after;
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// The members of a dictionary whose opening brace is before a text, and its length with the closing one.
fn members(text: &str) -> (Vec<&str>, usize) {
    let (mut members, mut start, mut at, mut depth) = (Vec::new(), 0, 0, 0_usize);
    while let Some(byte) = text.as_bytes().get(at) {
        let ends = depth == 0 && matches!(byte, b'}' | b',');
        if ends {
            members.push(text.get(start..at).unwrap_or_default().trim());
            start = at + 1;
        }
        match byte {
            b'}' if ends => return (members, start),
            b'"' => at += text.get(at..).map_or(0, |rest| string_length(rest).saturating_sub(1)),
            b'{' | b'[' | b'(' | b'<' => depth += 1,
            b'}' | b']' | b')' | b'>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    (members, text.len())
}

/// `#loc12 = loc(…)`, by whatever name.
fn is_location_alias(line: &str) -> bool {
    line.starts_with("#loc") || (line.starts_with('#') && line.contains(" = loc("))
}

/// Bytes of the string that a text starts with, quotes included.
pub(super) fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes up to the end of the first balanced parenthesis group of a text.
fn group_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut index = 0;
    while let Some(rest) = text.get(index..).filter(|rest| !rest.is_empty()) {
        match rest.bytes().next() {
            Some(b'"') => {
                index += string_length(rest);
                continue;
            }
            Some(b'(') => depth += 1,
            Some(b')') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
        index += rest.chars().next().map_or(1, char::len_utf8);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    // as JAX 0.12 prints operations with and without `set_xla_metadata(xla_metadata_payload=…)`
    #[test]
    fn payloads_leave_no_trace() {
        let payload = r#"xla_metadata_payload = "a}, \22b\22.v1:0""#;
        for (labelled, plain) in [
            ("%1 = stablehlo.tanh %0 {mhlo.frontend_attributes = {P}} : t", "%1 = stablehlo.tanh %0 : t"),
            ("}) {mhlo.frontend_attributes = {P}} : (t) -> t", "}) : (t) -> t"),
            (": t attributes {mhlo.frontend_attributes = {P}}\n cond {", ": t\n cond {"),
            (
                r#"{a = "", mhlo.frontend_attributes = {n = "0", P}, b = [1, 2]} : t"#,
                r#"{a = "", mhlo.frontend_attributes = {n = "0"}, b = [1, 2]} : t"#,
            ),
            (r#"{a = "", mhlo.frontend_attributes = {P}, b = 1} : t"#, r#"{a = "", b = 1} : t"#),
            (r#"{mhlo.frontend_attributes = {P}, b = 1} : t"#, "{b = 1} : t"),
            (r#"{a = "", mhlo.frontend_attributes = {P}} : t"#, r#"{a = ""} : t"#),
            (r#"{mhlo.frontend_attributes = {P, z = "P"}} : t"#, r#"{mhlo.frontend_attributes = {z = "P"}} : t"#),
            ("{mhlo.frontend_attributes = {}} {mhlo.frontend_attributes = {a = 1 ", ""),
        ] {
            let labelled = labelled.replacen('P', payload, 1);
            let plain = if plain.is_empty() { &labelled } else { plain };
            assert_eq!(without_payloads(&format!("{labelled}\n{labelled}")), format!("{plain}\n{plain}"));
        }
    }
}
