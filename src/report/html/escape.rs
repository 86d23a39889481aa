//! Text that came from elsewhere, made safe for a page.

use std::fmt::{self, Write};
use std::io;

use serde::Serialize;

/// Text for an element or a quoted attribute.
///
/// Control characters become blanks. Bidirectional control characters are spelled out, so that a name cannot disguise
/// itself.
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
                // XML forbids the last two
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The same for prose, in which backticks mark code.
pub(in crate::report) struct Prose<'a>(pub(in crate::report) &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticks = self.0.matches('`').count();
        for (index, part) in self.0.split('`').enumerate() {
            match (index % 2, index < ticks) {
                (0, _) => write!(f, "{}", Text(part))?,
                (_, true) => write!(f, "<code>{}</code>", Text(part))?,
                // nothing closes it
                (_, false) => write!(f, "`{}", Text(part))?,
            }
        }
        Ok(())
    }
}

/// JSON for the inside of a `script` element: characters that could end the element or begin a comment only occur in
/// strings, and are escaped there.
pub(in crate::report) fn script_json<T: Serialize>(value: &T) -> io::Result<String> {
    let json = serde_json::to_string(value)?;
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // writing to a string never fails
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    Ok(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_text_becomes_markup() {
        let text = Text("<b a=\"x\" b='y'>&\n\u{202e}é").to_string();
        assert_eq!(text, "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp; [U+202E]é");
        let prose = Prose("(`--force` of `<b>`), `again").to_string();
        assert_eq!(prose, "(<code>--force</code> of <code>&lt;b&gt;</code>), `again");
        let json = script_json(&"</script><!--\u{2028}&").unwrap();
        assert_eq!(json, r#""\u003c/script\u003e\u003c!--\u2028\u0026""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!--\u{2028}&");
    }
}
