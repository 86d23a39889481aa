//! The form of a file, compressed or not, from its first bytes.

use std::io::{self, Read};

use super::compressed;
use super::detect::{self, Content};
use super::found::ModuleForm;

const MAX_COMPRESSION_LAYERS: usize = 2;

/// The form of a file's content; `None` if it is not a module.
pub(super) fn form_of(file: impl Read + 'static) -> io::Result<Option<ModuleForm>> {
    form_within(Box::new(file), 0)
}

fn form_within(mut reader: Box<dyn Read>, layers: usize) -> io::Result<Option<ModuleForm>> {
    let mut head = Vec::new();
    reader.by_ref().take(detect::HEAD_BYTES as u64).read_to_end(&mut head)?;
    let content = detect::detect(&head).ok();
    let whole = io::Cursor::new(head).chain(reader);
    match content {
        Some(Content::Module(form)) => Ok(Some(form)),
        Some(Content::Exported) => Ok(Some(ModuleForm::StablehloBytecode)),
        Some(Content::Gzip) if layers < MAX_COMPRESSION_LAYERS => {
            form_within(Box::new(compressed::gzip(whole)), layers + 1)
        }
        Some(Content::Zstd) if layers < MAX_COMPRESSION_LAYERS => {
            form_within(Box::new(compressed::zstd(whole)), layers + 1)
        }
        _ => Ok(None),
    }
}
