//! What a program computes, apart from where it was written down.

use super::ProgramFormat;
use crate::digest::Digest;

/// The digest that is equal for equal programs recorded in different places.
///
/// For StableHLO text it is the SHA-256 of the text without `loc(…)` and `#loc` lines, the module's name replaced
/// by `@module`, surrounding white space removed: what MLIR prints without debug information for a module of that
/// name. A recorder of portable artifacts computes it from the text of the same module; without that text, as
/// here, the digest of the bytes stands in: equal bytes are surely one program, others are then taken to differ.
pub fn semantic_digest(format: ProgramFormat, bytes: &[u8]) -> Digest {
    let text = match format {
        ProgramFormat::StablehloText => std::str::from_utf8(bytes).ok(),
        ProgramFormat::StablehloPortable | ProgramFormat::HloProto => None,
    };
    match text {
        Some(text) => Digest::of(with_module_renamed(&without_locations(text)).as_bytes()),
        None => Digest::of(bytes),
    }
}

/// Targets of the custom calls in a StableHLO text, sorted, each once; none for the other formats.
pub fn custom_calls(format: ProgramFormat, bytes: &[u8]) -> Vec<String> {
    let text = match format {
        ProgramFormat::StablehloText => std::str::from_utf8(bytes).unwrap_or_default(),
        ProgramFormat::StablehloPortable | ProgramFormat::HloProto => return Vec::new(),
    };
    let calls = text.split("custom_call @").skip(1).map(|rest| symbol(rest).trim_matches('"').to_owned());
    let mut calls: Vec<String> = calls.filter(|name| !name.is_empty()).collect();
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// The symbol name at the start of a text, quotes included.
fn symbol(text: &str) -> &str {
    let end = match text.strip_prefix('"') {
        Some(quoted) => quoted.find('"').map_or(text.len(), |end| end + 2),
        None => {
            let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-');
            text.find(|c| !part(c)).unwrap_or(text.len())
        }
    };
    text.get(..end).unwrap_or(text)
}

fn with_module_renamed(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix("module @") {
        Some(rest) => format!("module @module{}", rest.get(symbol(rest).len()..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The text without location aliases and trailing locations; strings are left as they are.
fn without_locations(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut line_start = true;
    while let Some(byte) = rest.bytes().next() {
        if line_start && rest.starts_with("#loc") {
            let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
            rest = rest.get(end..).unwrap_or_default();
            continue;
        }
        line_start = byte == b'\n';
        let taken = match byte {
            b'"' => string_length(rest),
            b' ' if rest.starts_with(" loc(") => {
                let end = group_length(rest);
                rest = rest.get(end..).unwrap_or_default();
                continue;
            }
            // up to the next byte that may begin something; never inside a character, as all of these are ASCII
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

/// Bytes of the string that a text starts with, quotes included.
fn string_length(text: &str) -> usize {
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

    #[test]
    fn locations_and_the_modules_name_do_not_count() {
        let plain = "module @module {\n  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n    \
                     return %arg0 : tensor<2xf32>\n  }\n}";
        let debug = "#loc = loc(unknown)\n#loc1 = loc(\"x)\\\"\")\nmodule @jit_f {\n  \
                     func.func public @main(%arg0: tensor<2xf32> loc(\"a (b\")) -> tensor<2xf32> {\n    \
                     return %arg0 : tensor<2xf32> loc(fused[\"q\"(#loc1), \"r\"])\n  } loc(#loc)\n} loc(#loc)\n#loc2 = loc(\"é\")\n";
        let digest = |text: &str| semantic_digest(ProgramFormat::StablehloText, text.as_bytes());
        assert_eq!(digest(plain), Digest::of(plain.as_bytes()));
        assert_eq!(digest(debug), digest(plain));
        assert_ne!(digest(&debug.replace("2xf32", "3xf32")), digest(plain));
        let quoted = "module @module {\n %0 = stablehlo.custom_call @foo() {backend_config = \" loc(x)\"}\n}";
        assert_eq!(digest(quoted), Digest::of(quoted.as_bytes()), "a string is no location");
    }

    #[test]
    fn hostile_text_ends() {
        for text in ["", "\"", " loc(", " loc((((", "module @", "module @\"", "#loc", "é loc(é", "\n#loc\n#loc"] {
            semantic_digest(ProgramFormat::StablehloText, text.as_bytes());
        }
    }

    #[test]
    fn custom_calls_are_listed_once() {
        let text = b"%1 = stablehlo.custom_call @Sharding(%0)\n%2 = stablehlo.custom_call @\"a$b\"(%1)\n\
                     %3 = stablehlo.custom_call @Sharding(%2) {x}";
        assert_eq!(custom_calls(ProgramFormat::StablehloText, text), ["Sharding", "a$b"]);
        assert!(custom_calls(ProgramFormat::HloProto, text).is_empty());
    }
}
