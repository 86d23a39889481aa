//! Where the time went, as a bar.

use std::io::{self, Write};

use crate::report::format_ns;
use crate::report::time::parts;
use crate::tune::TimeBreakdown;

/// Writes a bar of the parts and their list; nothing if nothing was done.
pub(super) fn write_time_breakdown(time_breakdown: &TimeBreakdown, out: &mut dyn Write) -> io::Result<()> {
    let total = time_breakdown.total().as_nanos() as f64;
    if total <= 0.0 {
        return Ok(());
    }
    write!(
        out,
        "<div class=\"spent\"><svg class=\"bar\" viewBox=\"0 0 1000 12\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    )?;
    let parts = parts(time_breakdown);
    let mut at = 0.0;
    for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.ns > 0) {
        let width = part.ns as f64 / total * 1000.0;
        write!(out, r#"<rect class="part{index}" x="{at:.2}" y="0" width="{width:.2}" height="12"/>"#)?;
        at += width;
    }
    write!(out, "</svg><ul><li><strong>{}</strong> in all</li>", format_ns(total))?;
    for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.ns > 0) {
        write!(
            out,
            r#"<li><svg class="key part{index}" viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2"/></svg>{} {}{}</li>"#,
            part.what,
            format_ns(part.ns as f64),
            part.beside
        )?;
    }
    writeln!(out, "</ul></div>")
}
