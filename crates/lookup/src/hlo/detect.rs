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
        return Ok(Content::Module(form));
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
        let is_mlir = [&b"module "[..], b"module{", b"func.func ", b"#loc", b"\"builtin.module\""]
            .iter()
            .any(|start| line.starts_with(start));
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

fn describe(head: &[u8]) -> String {
    let known: &[(&[u8], &str)] = &[
        (b"\x7fELF", "an ELF binary"),
        (b"PK\x03\x04", "a zip archive"),
        (b"BC\xc0\xde", "LLVM bitcode"),
        (b"; ModuleID", "LLVM IR"),
        (b"%PDF", "a PDF document"),
        (b"BufferAssignment:", "an XLA buffer assignment, which is beside the module in a dump"),
        (b"{", "JSON"),
    ];
    if let Some((_, name)) = known.iter().find(|(magic, _)| head.starts_with(magic)) {
        return (*name).to_owned();
    }
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    // a character truncated at the end is not a sign of binary data
    let is_utf8 = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    if is_utf8 && head.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace()) {
        let start: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(40).collect();
        format!("text that begins with `{start}`")
    } else {
        let bytes: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("binary data that begins with {}", bytes.join(" "))
    }
}
