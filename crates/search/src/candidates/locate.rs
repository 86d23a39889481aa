//! The position of a value in a JSON text, for errors that are found after parsing.

/// One step into a JSON value.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathStep<'a> {
    Key(&'a str),
    Index(usize),
}

/// Byte offset of the value at a path; as far along the path as it exists. The text must be valid JSON.
pub(super) fn offset(text: &str, path: &[PathStep<'_>]) -> usize {
    let mut at = blank(text, 0);
    for step in path {
        match enter(text, at, *step) {
            Some(inner) => at = inner,
            None => break,
        }
    }
    at
}

/// Byte offset of a character, by its number from 0, of the string at `at`. An escape is one character.
pub(super) fn offset_in_string(text: &str, at: usize, character: usize) -> usize {
    let mut place = at + 1;
    for _ in 0..character {
        let rest = text.get(place..).unwrap_or_default();
        let high = |digits: &[u8]| matches!(digits, [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..]);
        place += match rest.as_bytes() {
            [] | [b'"', ..] => break,
            // a character beyond 16 bits is two of these
            [b'\\', b'u', digits @ ..] if high(digits) => 12,
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] => 2,
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    place
}

/// Line and column, both from 1, of a byte offset; columns count characters.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// The offset of a member of the object or array at `at`.
fn enter(text: &str, at: usize, step: PathStep<'_>) -> Option<usize> {
    let mut at = blank(text, at + 1);
    let mut index = 0;
    while !matches!(text.as_bytes().get(at)?, b'}' | b']') {
        let found = match step {
            PathStep::Index(wanted) => index == wanted,
            PathStep::Key(wanted) => {
                let end = past_value(text, at);
                let key: String = serde_json::from_str(text.get(at..end)?).ok()?;
                // past the key, blanks, the colon, blanks
                at = blank(text, blank(text, end) + 1);
                key == wanted
            }
        };
        if found {
            return Some(at);
        }
        index += 1;
        at = blank(text, past_value(text, at));
        if text.as_bytes().get(at) == Some(&b',') {
            at = blank(text, at + 1);
        }
    }
    None
}

fn blank(text: &str, from: usize) -> usize {
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The offset after the value at `at`.
fn past_value(text: &str, at: usize) -> usize {
    let mut depth = 0_usize;
    let (mut quoted, mut escaped) = (false, false);
    for (place, byte) in text.bytes().enumerate().skip(at) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return place + 1;
                }
            }
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth > 1 => depth -= 1,
            b']' | b'}' => return if depth == 1 { place + 1 } else { place },
            b',' if depth == 0 => return place,
            _ if depth == 0 && byte.is_ascii_whitespace() => return place,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_path() {
        let text = "{\n  \"a\\\"]\": [1, \"x,]\", {\"b\": true}],\n  \"c\" : -2.5e3\n}";
        let at = |path: &[PathStep<'_>]| text.get(offset(text, path)..).unwrap();
        let array = PathStep::Key("a\"]");
        assert!(at(&[array, PathStep::Index(1)]).starts_with("\"x,]\""));
        assert!(at(&[array, PathStep::Index(2), PathStep::Key("b")]).starts_with("true"));
        assert!(at(&[PathStep::Key("c")]).starts_with("-2.5e3"));
        assert!(at(&[array, PathStep::Index(9)]).starts_with("[1,"), "as far as the path goes");
        assert_eq!(line_and_column(text, offset(text, &[PathStep::Key("c")])), (3, 9));
    }

    #[test]
    fn characters_of_a_string_are_found_behind_escaped_ones() {
        let text = r#" "a\"\u0022\ud83d\ude00é\nz""#;
        let at = |character| text.get(offset_in_string(text, 1, character)..).unwrap();
        assert_eq!((at(1), at(2)), (r#"\"\u0022\ud83d\ude00é\nz""#, r#"\u0022\ud83d\ude00é\nz""#));
        assert_eq!((at(3), at(4), at(6)), (r#"\ud83d\ude00é\nz""#, "é\\nz\"", "z\""));
        assert_eq!((at(7), at(99)), ("\"", "\""), "no further than its end");
    }
}
