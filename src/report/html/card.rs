//! A key figure and its explanation.

use std::io::{self, Write};

use super::escape::Text;

/// Writes one card of a list of the class `cards`; `name` is markup.
pub(in crate::report) fn write_card(out: &mut dyn Write, name: &str, figure: &str, beside: &str) -> io::Result<()> {
    writeln!(
        out,
        "<div><dt>{name}</dt><dd><span class=\"figure\">{}</span> <span class=\"beside\">{}</span></dd></div>",
        Text(figure),
        Text(beside)
    )
}
