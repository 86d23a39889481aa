//! Lines: read in bounded memory, and made of any text.

use std::io::{self, BufRead, Read};

use super::limits::MAX_LINE_BYTES;
use crate::printable::printable;

/// One line, with whitespace collapsed, control characters escaped, truncated at `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&printable(word));
        if line.len() > limit {
            break;
        }
    }
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The result of [`read_line`].
#[derive(Debug, PartialEq, Eq)]
pub enum LineRead {
    /// A line, without its newline.
    Line,
    /// A line longer than [`MAX_LINE_BYTES`]: skipped to its end.
    TooLong,
    /// The end of the stream.
    End,
}

/// Reads one line into `line` in bounded memory.
///
/// # Errors
///
/// If the reader fails.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    line.clear();
    let read = reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(LineRead::Line);
    }
    if read < MAX_LINE_BYTES {
        // a last line without a newline is truncated and not a message
        return Ok(LineRead::End);
    }
    line.clear();
    reader.skip_until(b'\n')?;
    Ok(LineRead::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_beyond_the_limit_is_skipped_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX_LINE_BYTES];
        bytes.extend_from_slice(b"yy\nnext\ncut");
        let mut reader = io::BufReader::new(&bytes[..]);
        let mut line = Vec::new();
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::TooLong);
        assert!(line.is_empty());
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::Line);
        assert_eq!(line, b"next");
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::End);
        let exact = [vec![b'x'; MAX_LINE_BYTES - 1], b"\n".to_vec()].concat();
        assert_eq!(read_line(&mut &exact[..], &mut line).unwrap(), LineRead::Line);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("a\n\tb\u{1b}[0m  c\u{202e}", 80), "a b\\u{1b}[0m c\\u{202e}");
        assert_eq!(one_line("äöü", 2), "äö…");
    }
}
