//! The words of an expression.

use super::error::ConstraintError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'t> {
    End,
    /// An integer without its sign, at most 2^63.
    Int(u64),
    Float(f64),
    Text(Box<str>),
    /// A word, including dotted parts.
    Name(&'t str),
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: &[&str] = &[
    "**", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "%", "<", ">", "!", "&", "|", "^", "(",
    ")", "{", "}", ",", ".",
];

/// Reads one word after another.
pub(super) struct Tokens<'t> {
    rest: &'t str,
    /// Characters behind it.
    at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text, at: 0 }
    }

    /// The next word and the character where it begins.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize), ConstraintError> {
        self.take(self.rest.len() - self.rest.trim_start().len());
        let at = self.at;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, at)) };
        let token = match first {
            '"' | '\'' | '`' => Token::Text(self.text(first)?),
            '0'..='9' => self.number()?,
            _ if is_word(first) => Token::Name(self.name()),
            _ => match SYMBOLS.iter().find(|symbol| self.rest.starts_with(**symbol)) {
                Some(symbol) => {
                    self.take(symbol.len());
                    Token::Symbol(symbol)
                }
                None => return Err(ConstraintError::new(at, format!("`{first}` is not part of an expression"))),
            },
        };
        Ok((token, at))
    }

    /// Moves past so many bytes and returns them.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.at += taken.chars().count();
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        self.take(self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len()))
    }

    fn name(&mut self) -> &'t str {
        let from = self.rest;
        self.take_while(is_word);
        // a point belongs to a name if another word follows
        while self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(is_first_of_word)) {
            self.take(1);
            self.take_while(is_word);
        }
        from.get(..from.len() - self.rest.len()).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Token<'t>, ConstraintError> {
        let (from, at) = (self.rest, self.at);
        let radix = match from.get(..2) {
            Some("0x" | "0X") => 16,
            Some("0o" | "0O") => 8,
            Some("0b" | "0B") => 2,
            _ => 10,
        };
        if radix != 10 {
            self.take(2);
            self.take_while(is_word);
        } else {
            let digits = |c: char| c.is_ascii_digit() || c == '_';
            self.take_while(digits);
            // not if a method follows: `2.max(m)`
            if self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
                self.take(1);
                self.take_while(digits);
            }
            let exponent = self.rest.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
            if let Some(rest) = exponent.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
                self.take(self.rest.len() - rest.len());
                self.take_while(digits);
            }
            // nothing blank precedes this
            self.take_while(is_word);
        }
        let text = from.get(..from.len() - self.rest.len()).unwrap_or_default();
        let wrong = |what: &str| ConstraintError::new(at, format!("`{text}` {what}"));
        let digits = text.replace('_', "");
        if radix == 10 && text.contains(['.', 'e', 'E']) {
            let value: f64 = digits.parse().map_err(|_| wrong("is not a number"))?;
            return if value.is_finite() { Ok(Token::Float(value)) } else { Err(wrong("is beyond a float")) };
        }
        let digits = if radix == 10 { digits.as_str() } else { digits.get(2..).unwrap_or_default() };
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Err(wrong("is not a number"));
        }
        let value = u64::from_str_radix(digits, radix).ok().filter(|value| *value <= 1 << 63);
        value.map(Token::Int).ok_or_else(|| wrong("is beyond an integer of 64 bits"))
    }

    fn text(&mut self, quote: char) -> Result<Box<str>, ConstraintError> {
        let from = self.at;
        let open = || ConstraintError::new(from, "the string does not end");
        self.take(1);
        let mut text = String::new();
        loop {
            let at = self.at;
            let next = self.rest.chars().next().ok_or_else(open)?;
            self.take(next.len_utf8());
            match next {
                _ if next == quote => return Ok(text.into()),
                '\\' if quote != '`' => {
                    let escaped = self.rest.chars().next().ok_or_else(open)?;
                    self.take(escaped.len_utf8());
                    let character = match escaped {
                        'n' => Some('\n'),
                        'r' => Some('\r'),
                        't' => Some('\t'),
                        '\\' | '"' | '\'' | '`' => Some(escaped),
                        'x' => self.code(2),
                        'u' => self.code(4),
                        'U' => self.code(8),
                        _ => None,
                    };
                    text.push(character.ok_or_else(|| ConstraintError::new(at, "this is not a character"))?);
                }
                _ => text.push(next),
            }
        }
    }

    /// A character by its code in a number of digits.
    fn code(&mut self, digits: usize) -> Option<char> {
        let number = self.rest.get(..digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.take(digits);
        u32::from_str_radix(number, 16).ok().and_then(char::from_u32)
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_first_of_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}
