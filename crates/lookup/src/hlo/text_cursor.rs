//! A place in a text whose white space means nothing, and the pieces that may stand there.

/// Longest comment between `/*` and `*/`: a reader looks ahead, and a hostile text may begin one everywhere.
const MAX_COMMENT: usize = 1 << 12;

/// A place in a text.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// The line of the byte `counted`, from 1.
    line: u64,
    counted: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, line: 1, counted: 0 }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The line of this place, from 1.
    pub(crate) fn line(&mut self) -> u64 {
        let passed = self.text.get(self.counted..self.at).unwrap_or_default();
        self.line += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.counted = self.counted.max(self.at);
        self.line
    }

    /// Takes the next `length` bytes, or what is left of the text.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let rest = self.rest();
        let taken = rest.get(..length).unwrap_or(rest);
        self.at += taken.len();
        taken
    }

    /// Passes white space and comments (`/*index=5*/`, `// …`), and returns the byte after them.
    pub(crate) fn next(&mut self) -> Option<u8> {
        loop {
            match self.rest() {
                [byte, ..] if byte.is_ascii_whitespace() => self.at += 1,
                rest @ [b'/', b'*', ..] => {
                    let near = rest.get(..MAX_COMMENT).unwrap_or(rest);
                    let Some(end) = memchr::memmem::find(near, b"*/") else { return Some(b'/') };
                    self.at += end + 2;
                }
                [b'/', b'/', ..] => self.skip_line(),
                rest => return rest.first().copied(),
            }
        }
    }

    /// Passes these bytes if they come next.
    pub(crate) fn eat(&mut self, wanted: &[u8]) -> bool {
        let is_next = self.next().is_some() && self.rest().starts_with(wanted);
        if is_next {
            self.at += wanted.len();
        }
        is_next
    }

    /// Takes the bytes that belong to a word; the word is empty if none comes next.
    pub(crate) fn word(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        self.next();
        let rest = self.rest();
        self.take(rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len()))
    }

    pub(crate) fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
    }

    /// Takes what is between the bracket that comes next and the one that closes it, without them; `None` if no
    /// bracket comes next.
    pub(crate) fn bracketed(&mut self) -> Option<&'a [u8]> {
        let length = match self.next()? {
            b'(' | b'[' | b'{' => balanced(self.rest()),
            _ => return None,
        };
        let taken = self.take(length).get(1..).unwrap_or_default();
        // the text may end before the bracket is closed
        Some(taken.strip_suffix(b")").or(taken.strip_suffix(b"]")).or(taken.strip_suffix(b"}")).unwrap_or(taken))
    }
}

/// Length of the text up to the bracket that closes the one at its start; brackets in strings do not count.
pub(crate) fn balanced(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at += quoted(text.get(at..).unwrap_or_default()).len() + 1,
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The content of a quoted string whose opening quote was just passed, still escaped.
pub(crate) fn quoted(text: &[u8]) -> &[u8] {
    let mut at = 0;
    while let Some(hit) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += hit;
        if text.get(at) == Some(&b'"') {
            return text.get(..at).unwrap_or_default();
        }
        at += 2;
    }
    text
}

/// Parts of a text between commas outside of brackets and strings.
pub(crate) fn parts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    let next = move || {
        let mut at = 0;
        while let Some(&byte) = rest.get(at) {
            match byte {
                b'(' | b'{' | b'[' => at += balanced(rest.get(at..).unwrap_or_default()).max(1),
                b'"' => at += quoted(rest.get(at + 1..).unwrap_or_default()).len() + 2,
                b',' => break,
                _ => at += 1,
            }
        }
        let part = rest.get(..at).unwrap_or(rest);
        let is_last = rest.is_empty();
        rest = rest.get(at + 1..).unwrap_or_default();
        (!is_last).then(|| part.trim_ascii())
    };
    std::iter::from_fn(next).filter(|part| !part.is_empty())
}
