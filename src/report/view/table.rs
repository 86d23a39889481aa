//! One table of a page, in a region that scrolls separately.

use std::io::{self, Write};

use crate::report::html::escape::Text;

/// Maximum number of rows; `profile summary --format json` has all.
pub(super) const MOST: usize = 25;

/// A table: its name, its columns (`>` marks numbers, aligned right), its rows, and the total number of rows.
pub(super) fn write_table(
    out: &mut dyn Write,
    name: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    all: usize,
) -> io::Result<()> {
    let id = format!("table-{}", name.to_lowercase().replace(' ', "-"));
    write_linked(out, (id.as_str(), name), columns, rows, (all, &[]))
}

/// The same with a given id, which links use, and with the link target of each row's first cell, if any.
pub(super) fn write_linked(
    out: &mut dyn Write,
    (id, name): (&str, &str),
    columns: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    (all, links): (usize, &[Option<String>]),
) -> io::Result<()> {
    let name = Text(name);
    if all == 0 {
        return Ok(());
    }
    let class = |column: usize| match columns.get(column) {
        Some(heading) if heading.starts_with('>') => " class=\"number\"",
        _ => "",
    };
    write!(
        out,
        "<h3 id=\"{id}\" tabindex=\"-1\">{name}</h3>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table><caption class=\"unseen\">{name}</caption><thead><tr>"
    )?;
    for (number, heading) in columns.iter().enumerate() {
        write!(out, "<th scope=\"col\"{}>{}</th>", class(number), heading.trim_start_matches('>'))?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for (place, row) in rows.take(MOST).enumerate() {
        write!(out, "<tr>")?;
        for (number, cell) in row.iter().enumerate() {
            match links.get(place).and_then(Option::as_ref).filter(|_| number == 0) {
                Some(link) => write!(out, "<td{}><a href=\"#{}\">{}</a></td>", class(number), Text(link), Text(cell))?,
                None => write!(out, "<td{}>{}</td>", class(number), Text(cell))?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if all > MOST {
        writeln!(out, "<p class=\"fine\">and {} more</p>", all - MOST)?;
    }
    Ok(())
}
