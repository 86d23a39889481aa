//! Makes external text safe for a terminal: every message passes this function before it is printed.
//!
//! ```
//! use autotune_lowered_lookup::printable::printable;
//!
//! let hostile = printable("a\u{1b}[31mred\nline");
//! assert!(!hostile.contains(char::is_control));
//! assert_eq!(printable("größe 3 µs"), "größe 3 µs");
//! ```

/// Whether a character would control a terminal, or make a line display differently from its content: control
/// characters, line and paragraph separators, and Unicode's bidirectional and invisible formatting characters (its
/// category Cf in these ranges; source: UAX #9, UTR #36).
fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with each such character as its escape (`\u{1b}`), so that it is visible and harmless. Line breaks and tabs
/// become blanks: a message is one line.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => line.push(' '),
            _ if steers(letter) => line.extend(letter.escape_unicode()),
            _ => line.push(letter),
        }
    }
    line
}

/// JSON with each such character as JSON's escape (`\u001b`): its meaning stays the same. Line breaks between values
/// are kept.
pub fn printable_json(json: &str) -> std::borrow::Cow<'_, str> {
    let steers = |letter: char| letter != '\n' && steers(letter);
    if !json.contains(steers) {
        return json.into();
    }
    let mut line = String::with_capacity(json.len());
    for letter in json.chars() {
        if steers(letter) {
            // all of them have 16 bits, so there are no surrogate pairs
            line.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            line.push(letter);
        }
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_as_its_escape() {
        assert_eq!(printable("plain `text`, µs, 4.81×, …, 日本"), "plain `text`, µs, 4.81×, …, 日本");
        assert_eq!(printable("a\x1b[31mred\u{9b}2J"), "a\\u{1b}[31mred\\u{9b}2J");
        assert_eq!(printable("two\nlines\r\tand a tab"), "two lines  and a tab");
        // the right-to-left override of "Trojan Source", isolates, marks, zero width and byte order marks
        assert_eq!(printable("\u{202e}exe.\u{2066}x\u{2069}"), "\\u{202e}exe.\\u{2066}x\\u{2069}");
        let value = serde_json::json!({"\u{202e}": ["\u{9b}2J\u{1b}\u{7f}", "plain"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = printable_json(&text);
        assert!(safe.contains("\\u202e") && safe.contains('\n') && !safe.contains(['\u{202e}', '\u{9b}', '\u{7f}']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        for letter in ['\u{200e}', '\u{200f}', '\u{061c}', '\u{2028}', '\u{feff}', '\u{200b}', '\0', '\u{7f}'] {
            assert!(!printable(&letter.to_string()).contains(letter), "{letter:?}");
        }
    }
}
