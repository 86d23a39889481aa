//! What a file is that was given in place of an XSpace.

use memchr::memmem;

/// Bytes at a file's start that are searched for what its format writes there.
const HEAD_BYTES: usize = 64 << 10;

/// What other files begin with, what they are, and what to do.
const MAGIC: [(&[u8], &str, &str); 7] = [
    (b"\xff\xfe", UTF_16, AS_BYTES),
    (b"\xfe\xff", UTF_16, AS_BYTES),
    (b"SQLite format 3\0", "an SQLite database, as Nsight Systems exports it", BESIDE),
    (b"PK\x03\x04", "a zip file", "unpack it, and give the `.xplane.pb` in it"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress it"),
    (b"\xfd7zXZ\0", "compressed with xz", "decompress it"),
    (b"BZh", "compressed with bzip2", "decompress it"),
];

const UTF_16: &str = "UTF-16 text, as PowerShell's `>` writes it";
const DECODED: &str = "what a text decoder left of binary data (U+FFFD in place of its bytes)";
const TRANSCODED: &str = "what a text decoder left of binary data (its bytes as characters)";
const AS_BYTES: &str = "copy the `.xplane.pb` again, as bytes";
const BESIDE: &str = "give the `.xplane.pb`, which the profiler writes beside it";

/// A message of planes without names.
pub(super) const OTHER_MESSAGE: (&str, &str) = ("a protobuf of another kind, such as a trace of Perfetto", BESIDE);

/// What bytes that are no XSpace are instead, and what to do; `None` if that cannot be seen.
pub(super) fn other_file(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, what, next)) = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return Some((what, next));
    }
    let head = bytes.get(..bytes.len().min(HEAD_BYTES)).unwrap_or_default();
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if text.starts_with(b"{") || text.starts_with(b"[") {
        let is_trace = [&b"traceEvents"[..], b"\"ph\""].iter().any(|part| memmem::find(text, part).is_some());
        return Some(if is_trace { ("a Chrome trace", BESIDE) } else { ("JSON", BESIDE) });
    }
    if is_wide(head) {
        return Some((UTF_16, AS_BYTES));
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let is_binary = text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r'));
    match (is_binary, text.is_ascii()) {
        _ if text.contains('\u{fffd}') => Some((DECODED, AS_BYTES)),
        (false, _) => Some(("text", BESIDE)),
        (true, false) => Some((TRANSCODED, AS_BYTES)),
        // the first bytes of a message may be ASCII
        (true, true) => None,
    }
}

/// Whether every other byte is zero, as in UTF-16 without a mark at its start.
fn is_wide(head: &[u8]) -> bool {
    let pairs = head.as_chunks::<2>().0;
    let wide = |zero: usize| pairs.iter().filter(|pair| pair.get(zero) == Some(&0)).count() * 10 > pairs.len() * 9;
    pairs.len() > 8 && (wide(0) || wide(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_told_by_their_bytes() {
        let wide: Vec<u8> = "HloModule jit_f, entry".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, what) in [
            (&b"\xef\xbb\xbf {\"displayTimeUnit\":\"ns\",\"traceEvents\":[]}"[..], "a Chrome trace"),
            (b"[{\"ph\":\"X\"}]", "a Chrome trace"),
            (b"{\"schema\": 1}", "JSON"),
            (&[b"\xff\xfe", &wide[..]].concat(), UTF_16),
            (&wide, UTF_16),
            (b"\n\xef\xbf\xbd\x02\x08\x01", DECODED),
            // as Latin-1 decodes it
            ("\n\u{e9}\u{2}\u{8}\u{1}".as_bytes(), TRANSCODED),
            (b"HloModule jit_f\n", "text"),
        ] {
            assert_eq!(other_file(bytes).map(|(what, _)| what), Some(what), "{bytes:?}");
        }
        assert_eq!([&b"\x0a\xff\x01"[..], b"\x0a\x03\x12"].map(other_file), [None; 2]);
    }
}
