//! The form of a file, from its first bytes.

use super::envelope::{self, BYTECODE};
use super::error::ScanErrorKind;
use super::found::ModuleForm;

/// Number of bytes examined to detect a form.
pub(crate) const HEAD_BYTES: usize = 1 << 16;

/// The result of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Module(ModuleForm),
    /// A file of `jax.export`, with StableHLO bytecode in it.
    Exported,
    Gzip,
    Zstd,
}

/// Detects a file's form from its first bytes; an error says what was found.
pub(crate) fn detect(head: &[u8]) -> Result<Content, ScanErrorKind> {
    if head.is_empty() || head.iter().all(u8::is_ascii_whitespace) {
        return Err(if head.len() < HEAD_BYTES {
            ScanErrorKind::Empty
        } else {
            ScanErrorKind::NotAModule { seen: "it begins with blanks only".to_owned() }
        });
    }
    match head {
        [0x1f, 0x8b, ..] => return Ok(Content::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Ok(Content::Zstd),
        _ if head.starts_with(BYTECODE) => return Ok(Content::Module(ModuleForm::StablehloBytecode)),
        _ => {}
    }
    let is_text = !head.contains(&0);
    if is_text && let Some(form) = text_form(head) {
        return match other_dialect(head) {
            Some(seen) if form == ModuleForm::StablehloText => Err(ScanErrorKind::NotAModule { seen }),
            _ => Ok(Content::Module(form)),
        };
    }
    if envelope::looks_like_module(head) {
        return Ok(Content::Module(ModuleForm::HloProto));
    }
    if envelope::looks_exported(head) {
        return Ok(Content::Exported);
    }
    Err(ScanErrorKind::NotAModule { seen: describe(head) })
}

fn text_form(head: &[u8]) -> Option<ModuleForm> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    for line in head.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_start();
        // the name may come on the next line
        if let Some(rest) = line.strip_prefix(b"HloModule")
            && rest.first().is_none_or(u8::is_ascii_whitespace)
        {
            return Some(ModuleForm::HloText);
        }
        let begins = |word: &[u8]| {
            let after = line.strip_prefix(word).map(|rest| rest.first());
            after.is_some_and(|next| next.is_none_or(|&byte| byte.is_ascii_whitespace() || b"@{(".contains(&byte)))
        };
        let words = [&b"module"[..], b"builtin.module", b"func.func", b"\"builtin.module\"", b"\"func.func\""];
        let is_mlir = line.starts_with(b"#loc") || words.into_iter().any(begins);
        if is_mlir {
            return Some(ModuleForm::StablehloText);
        }
    }
    // a fragment: without its header, but with text that only these forms have
    let has = |needle: &[u8]| memchr::memmem::find(head, needle).is_some();
    if has(b"metadata={op_name=\"") {
        Some(ModuleForm::HloText)
    } else if has(b" = stablehlo.") && has(b"tensor<") {
        Some(ModuleForm::StablehloText)
    } else {
        None
    }
}

/// The dialect of MLIR text that holds functions of another one and nothing of StableHLO: XLA dumps its kernels beside
/// their module.
fn other_dialect(head: &[u8]) -> Option<String> {
    let has = |needle: &&str| memchr::memmem::find(head, needle.as_bytes()).is_some();
    let found = ["tt.func", "llvm.func", "gpu.func", "lmhlo."].into_iter().find(has)?;
    (!["func.func", "stablehlo."].iter().any(has))
        .then(|| format!("MLIR of another dialect than StableHLO (`{found}`)"))
}

/// What binary data lost on its way through a program that took it for text.
const DECODED: &str =
    "binary data that went through a text decoder, which replaced bytes; copy the original file as binary";

/// Other files by how they begin.
const KNOWN: [(&[u8], &str); 12] = [
    (b"\x7fELF", "an ELF binary"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"; ModuleID", "LLVM IR"),
    (b"%PDF", "a PDF document"),
    (b"BufferAssignment:", "an XLA buffer assignment, which is beside the module in a dump"),
    // bytecode, gzip and zstd, each byte taken for a character of Latin-1
    (b"ML\xc3\xafR", DECODED),
    (b"\x1f\xc2\x8b", DECODED),
    (b"\x28\xc2\xb5\x2f\xc3\xbd", DECODED),
    (b"{\\rtf", "a rich-text document; save it as plain text"),
    (b"<!DOCTYPE", "a web page; download the file itself"),
    (b"<html", "a web page; download the file itself"),
];

fn describe(head: &[u8]) -> String {
    if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return (*name).to_owned();
    }
    if is_utf16(head) {
        return "UTF-16 text, as PowerShell's `>` writes it; convert it with `iconv -f UTF-16 -t UTF-8`".to_owned();
    }
    if is_decoded(head) {
        return DECODED.to_owned();
    }
    if is_profile(head) {
        return "a profile (XSpace); `autotune-lowered profile summary` reads it".to_owned();
    }
    if is_json(head) {
        return describe_json(head).to_owned();
    }
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if is_plain_text(head) {
        let start: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(40).collect();
        format!("text that begins with `{start}`")
    } else {
        let bytes: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("binary data that begins with {}", bytes.join(" "))
    }
}

fn has_control_bytes(head: &[u8]) -> bool {
    head.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace())
}

fn is_plain_text(head: &[u8]) -> bool {
    // a character truncated at the end is not a sign of binary data
    let is_utf8 = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    is_utf8 && !has_control_bytes(head)
}

/// UTF-16 with its byte order mark, or a beginning of ASCII in it.
fn is_utf16(head: &[u8]) -> bool {
    let mut units = head.get(..head.len().min(32)).unwrap_or_default().chunks_exact(2);
    let is_ascii = |wide: &[u8]| matches!(wide, [1..=0x7f, 0]) || matches!(wide, [0, 1..=0x7f]);
    head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || (units.len() >= 8 && units.all(is_ascii))
}

/// Whether binary data holds U+FFFD, which decoders put in place of bytes that are no text.
fn is_decoded(head: &[u8]) -> bool {
    memchr::memmem::find(head, "\u{fffd}".as_bytes()).is_some() && has_control_bytes(head)
}

/// Whether it begins with a plane of an XSpace, which has the plane's name within its first fields.
fn is_profile(head: &[u8]) -> bool {
    let start = head.get(..head.len().min(64)).unwrap_or_default();
    let names: [&[u8]; 3] = [b"/device:", b"/host:", b"Task Environment"];
    start.first() == Some(&0x0a) && names.iter().any(|name| memchr::memmem::find(start, name).is_some())
}

/// Whether it begins as an object or an array does; so do not the sections of other formats.
fn is_json(head: &[u8]) -> bool {
    let mut bytes = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    match (bytes.next(), bytes.next()) {
        (Some(b'{'), Some(next)) => matches!(next, b'"' | b'}'),
        (Some(b'['), Some(next)) => matches!(next, b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9'),
        _ => false,
    }
}

fn describe_json(head: &[u8]) -> &'static str {
    let has = |needle: &[u8]| memchr::memmem::find(head, needle).is_some();
    if has(b"\"traceEvents\"") {
        "a Chrome trace; `autotune-lowered profile summary` reads the `.xplane.pb` beside it"
    } else if has(b"\"module_digest\"") {
        "a side file of labels; give the module beside it"
    } else {
        "JSON"
    }
}

/// The error of a proto that a text decoder damaged, in place of what its reader met.
pub(super) fn explain(kind: ScanErrorKind, head: &[u8]) -> ScanErrorKind {
    let is_damage = matches!(kind, ScanErrorKind::Truncated { .. } | ScanErrorKind::NotAModule { .. });
    if is_damage && is_decoded(head) { ScanErrorKind::NotAModule { seen: DECODED.to_owned() } } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_called_what_they_are() {
        let said = |head: &[u8]| match detect(head) {
            Err(ScanErrorKind::NotAModule { seen }) => seen,
            other => panic!("{other:?}"),
        };
        let text = "HloModule jit_g\n\nENTRY %main (a: f32[4]) -> f32[4] {";
        let (little, big): (Vec<u8>, Vec<u8>) = (
            text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        );
        for wide in
            [little.clone(), big.clone(), [&b"\xff\xfe"[..], &little].concat(), [&b"\xfe\xff"[..], &big].concat()]
        {
            assert!(said(&wide).starts_with("UTF-16 text"), "{}", said(&wide));
        }
        let bytecode: &[u8] = b"ML\xefR\rStableHLO_v1.2.0\0\x01\xd5\x05";
        let latin: String = bytecode.iter().map(|&byte| char::from(byte)).collect();
        for text in
            [String::from_utf8_lossy(bytecode).as_ref(), &latin, "\x1f\u{fffd}\x08\0\0", "\n\u{fffd}\x02\x08\x01"]
        {
            assert_eq!(said(text.as_bytes()), DECODED, "{text:?}");
        }
        assert!(said(br#"{"displayTimeUnit":"ns","traceEvents":[]}"#).contains("Chrome trace"));
        assert_eq!(said(b" [1, 2]"), "JSON");
        assert!(said(b"[workspace]\n").starts_with("text that begins"));
        assert!(said(b"\x0a\xfc\x16\x12\x0e/host:metadata").contains("profile summary"));
        assert!(said("caf\u{fffd}".as_bytes()).starts_with("text that begins"));
    }
}
