//! A page around its body: its head, with the policy that allows only its one style and its one script, and its data.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::digest::Digest;
use crate::printable::printable;

use super::escape::script_json;

/// What all pages have.
pub(in crate::report) struct PageFrame<'a> {
    /// The kind of page, and its subject.
    pub(in crate::report) title: (&'a str, &'a str),
    pub(in crate::report) style: &'a str,
    pub(in crate::report) script: &'a str,
    /// Whether its icon is set to nothing, so that a server is not asked for one.
    pub(in crate::report) has_icon: bool,
    /// The program that wrote it.
    pub(in crate::report) tool: &'a str,
}

impl PageFrame<'_> {
    /// Writes the page with what programs find in it, in the element `data`.
    pub(in crate::report) fn write(&self, out: &mut dyn Write, body: &Markup, data: &impl Serialize) -> io::Result<()> {
        let Self { title: (what, subject), style, script, has_icon, tool } = *self;
        let hash = |text: &str| STANDARD.encode(Digest::of(text.as_bytes()).as_bytes());
        let images = if has_icon { "img-src data:; " } else { "" };
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; {images}base-uri 'none'; form-action \
             'none'",
            hash(style),
            hash(script)
        );
        let head = html! {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            @if has_icon { link rel="icon" href="data:,"; }
            title { (what) " of " (subject) }
        };
        let body = html! { (body) footer { p { "Written by " (tool) "." } } };
        // names from files could otherwise turn the direction of what stands beside them
        let [head, body] = [head, body].map(|markup| PreEscaped(printable(&markup.into_string())));
        let page = html! {
            (maud::DOCTYPE) "\n"
            html lang="en" {
                head { (head) style { (PreEscaped(style)) } } "\n"
                body {
                    (body) "\n"
                    script type="application/json" id="data" { (PreEscaped(script_json(data)?)) } "\n"
                    script { (PreEscaped(script)) }
                }
            }
        };
        writeln!(out, "{}", page.into_string())
    }
}

/// Draws a key figure and its explanation, one card of a list of the class `cards`.
pub(in crate::report) fn card(name: &str, figure: &str, beside: &str) -> Markup {
    html! { div { dt { (name) } dd { span.figure { (figure) } " " span.beside { (beside) } } } }
}
