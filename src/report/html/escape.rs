//! Text that came from elsewhere, made safe for a page.

use std::fmt::{self, Write};
use std::io;

use serde::Serialize;

/// Text for an element or a quoted attribute.
///
/// Control characters become blanks. Marks that turn the direction of what follows are spelled out, so that a name looks like
/// what it is.
pub(in crate::report) struct Text<'a>(pub(in crate::report) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    write!(f, "[U+{:04X}]", u32::from(c))?;
                }
                // no XML document may hold the last two
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// JSON for the inside of a `script` element: what could end the element or begin a comment only ever stands in strings, and is
/// written there by its number.
pub(in crate::report) fn script_json<T: Serialize>(value: &T) -> io::Result<String> {
    let json = serde_json::to_string(value)?;
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // writing to a string does not fail
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    Ok(safe)
}

/// Bytes in base64, with padding.
pub(in crate::report) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, &byte| (bits << 8) | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * place)) as usize & 63).copied().unwrap_or(b'=');
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_text_becomes_markup() {
        let text = Text("<b a=\"x\" b='y'>&\n\u{202e}é").to_string();
        assert_eq!(text, "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp; [U+202E]é");
        let json = script_json(&"</script><!--\u{2028}&").unwrap();
        assert_eq!(json, r#""\u003c/script\u003e\u003c!--\u2028\u0026""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!--\u{2028}&");
    }

    /// The vectors of RFC 4648.
    #[test]
    fn base64_is_that_of_the_rfc() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(of),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]
        );
    }
}
