//! Text that came from elsewhere, made safe for a page: `maud` escapes it, and [`super::page::Page`] shows what would
//! steer its direction.

use std::fmt::Write;
use std::io;

use maud::{Markup, html};
use serde::Serialize;

/// Draws prose, in which backticks mark code.
pub(super) fn prose(text: &str) -> Markup {
    let ticks = text.matches('`').count();
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 0 { (part) } @else if index < ticks { code { (part) } } @else { "`" (part) }
        }
    }
}

/// Returns JSON for the inside of a `script` element: characters that could end the element or begin a comment only
/// occur in strings, and are escaped there.
pub(super) fn script_json<T: Serialize>(value: &T) -> io::Result<String> {
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
        let prose = prose("(`--force` of `<b>`), `again").into_string();
        assert_eq!(prose, "(<code>--force</code> of <code>&lt;b&gt;</code>), `again");
        let json = script_json(&"</script><!--\u{2028}&").unwrap();
        assert_eq!(json, r#""\u003c/script\u003e\u003c!--\u2028\u0026""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!--\u{2028}&");
    }
}
