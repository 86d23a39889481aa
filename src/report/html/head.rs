//! The head of a page, with the policy that allows only its one style and its one script.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::escape::Text;
use crate::digest::Digest;

/// Writes all before the body. `images` is the policy for images, `icon` a link to one; both may be empty.
pub(in crate::report) fn write_head(
    out: &mut dyn Write,
    (what, subject): (&str, &str),
    (style, script): (&str, &str),
    (images, icon): (&str, &str),
) -> io::Result<()> {
    let hash = |text: &str| STANDARD.encode(Digest::of(text.as_bytes()).as_bytes());
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         {images}base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         {icon}<title>{what} of {}</title>\n<style>{style}</style>\n</head>\n<body>",
        hash(style),
        hash(script),
        Text(subject)
    )
}
