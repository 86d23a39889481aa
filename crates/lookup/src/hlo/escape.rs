//! String escapes of the text forms, decoded one byte at a time so that a reader may stop anywhere.

/// How a form escapes bytes inside its quoted strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// Strings are raw bytes; a control byte ends them (binary forms keep them NUL-terminated or apart).
    Raw,
    /// C: `\"`, `\\`, `\n`, three octal digits, `\x` and hexadecimal digits (HLO text).
    C,
    /// MLIR: `\` and two hexadecimal digits, or `\\`, `\"`, `\n`, `\t`.
    Mlir,
}

/// Iterates over the bytes of a string that starts at the first byte; ends at the closing quote or a control byte.
#[derive(Debug, Clone)]
pub(crate) struct Unescaper<'a> {
    bytes: &'a [u8],
    position: usize,
    escapes: Escapes,
    closed: bool,
}

impl<'a> Unescaper<'a> {
    pub(crate) fn new(bytes: &'a [u8], escapes: Escapes) -> Self {
        Self { bytes, position: 0, escapes, closed: false }
    }

    /// Escaped bytes consumed so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Whether the available bytes (almost) ended before the string did; an escape may be truncated at their end.
    pub(crate) fn is_open(&self) -> bool {
        const LONGEST_ESCAPE: usize = 4;
        !self.closed && self.position + LONGEST_ESCAPE > self.bytes.len()
    }

    fn escape(&self) -> (u8, usize) {
        let at = |offset: usize| self.bytes.get(self.position + offset).copied();
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let octal = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(8));
        let simple = match at(1) {
            Some(b'n') => Some(b'\n'),
            Some(b't') => Some(b'\t'),
            Some(b'r') => Some(b'\r'),
            Some(byte @ (b'"' | b'\\' | b'\'')) => Some(byte),
            _ => None,
        };
        if let Some(byte) = simple {
            return (byte, 2);
        }
        let number = match self.escapes {
            Escapes::Mlir => hex(at(1)).zip(hex(at(2))).map(|(high, low)| (high * 16 + low, 3)),
            Escapes::C if at(1) == Some(b'x') => hex(at(2)).zip(hex(at(3))).map(|(high, low)| (high * 16 + low, 4)),
            Escapes::C => octal(at(1)).zip(octal(at(2))).zip(octal(at(3))).map(|((a, b), c)| (a * 64 + b * 8 + c, 4)),
            Escapes::Raw => None,
        };
        match number {
            Some((number, length)) => (u8::try_from(number).unwrap_or(b'?'), length),
            None => (b'\\', 1),
        }
    }
}

impl Iterator for Unescaper<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        let (byte, length) = match (byte, self.escapes) {
            (b'\\', Escapes::C | Escapes::Mlir) => self.escape(),
            (b'"', Escapes::C | Escapes::Mlir) | (0..0x20, _) => {
                self.closed = true;
                return None;
            }
            (byte, _) => (byte, 1),
        };
        self.position += length;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescape(text: &str, escapes: Escapes) -> String {
        String::from_utf8(Unescaper::new(text.as_bytes(), escapes).collect()).unwrap()
    }

    #[test]
    fn each_form_has_its_own_escapes() {
        assert_eq!(unescape(r#"a\"b\\c\303\251\x41" rest"#, Escapes::C), r#"a"b\céA"#);
        assert_eq!(unescape(r#"a\22b\5Cc\C3\A9\\d" rest"#, Escapes::Mlir), r#"a"b\cé\d"#);
        assert_eq!(unescape("a\"b\\22\0rest", Escapes::Raw), "a\"b\\22");
    }

    #[test]
    fn an_escape_cut_at_the_end_is_no_panic() {
        for text in ["\\", "\\2", "\\x", "\\x4", "\\3"] {
            for escapes in [Escapes::C, Escapes::Mlir, Escapes::Raw] {
                assert_eq!(unescape(text, escapes).as_bytes()[0], b'\\');
            }
        }
    }
}
