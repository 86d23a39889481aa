//! The words of an expression.

use super::error::ConstraintError;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'t> {
    End,
    /// An integer without its sign, at most 2^63.
    Int(u64),
    Float(f64),
    Text(&'t str),
    /// A word, including dotted parts.
    Name(&'t str),
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: &[&str] =
    &["**", "&&", "||", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "!", "(", ")", ","];

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
            '"' | '\'' => self.text(first).ok_or_else(|| ConstraintError::new(at, "the string does not end"))?,
            '0'..='9' => self.number().map_err(|message| ConstraintError::new(at, message))?,
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

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) {
        self.take(self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len()));
    }

    /// A point belongs to a name.
    fn name(&mut self) -> &'t str {
        let from = self.rest;
        self.take_while(|c| is_word(c) || c == '.');
        from.get(..from.len() - self.rest.len()).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Token<'t>, String> {
        let from = self.rest;
        self.take_while(|c| is_word(c) || c == '.');
        let written = |rest: &str| from.get(..from.len() - rest.len()).unwrap_or_default();
        if written(self.rest).ends_with(['e', 'E']) && self.rest.starts_with(['+', '-']) {
            self.take(1);
            self.take_while(is_word);
        }
        let text = written(self.rest);
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let value = text.parse().ok().filter(|value| *value <= 1 << 63);
            return value.map(Token::Int).ok_or_else(|| format!("`{text}` is beyond an integer of 64 bits"));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Token::Float(value)),
            Ok(_) => Err(format!("`{text}` is beyond a float")),
            Err(_) => Err(format!("`{text}` is not a number")),
        }
    }

    /// What stands between two quotes, as it stands.
    fn text(&mut self, quote: char) -> Option<Token<'t>> {
        let (text, _) = self.rest.get(1..)?.split_once(quote)?;
        self.take(text.len() + 2);
        Some(Token::Text(text))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
