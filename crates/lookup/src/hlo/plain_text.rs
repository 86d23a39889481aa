//! StableHLO text without locations and the module's name.

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
