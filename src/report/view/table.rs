//! One table of a page, in a region that scrolls separately.

use maud::{Markup, html};

/// Maximum number of rows; `profile summary --format json` has all.
pub(super) const MOST: usize = 25;

/// Draws a table: its name, its columns (`>` marks numbers, aligned right) and its rows. Nothing if there is no row.
pub(super) fn table(name: &str, columns: &[&str], rows: impl ExactSizeIterator<Item = Vec<String>>) -> Markup {
    linked_table(&format!("table-{}", name.to_lowercase().replace(' ', "-")), name, columns, rows, &[])
}

/// Draws a table with a given id, which links use, and with the link target of each row's first cell, if any.
pub(super) fn linked_table(
    id: &str,
    name: &str,
    columns: &[&str],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
    links: &[Option<String>],
) -> Markup {
    let all = rows.len();
    let class = |column: usize| columns.get(column).filter(|heading| heading.starts_with('>')).map(|_| "number");
    html! {
        @if all > 0 {
            h3 id=(id) tabindex="-1" { (name) }
            div.wide tabindex="0" role="region" aria-label=(name) {
                table {
                    caption.unseen { (name) }
                    thead {
                        tr {
                            @for (number, heading) in columns.iter().enumerate() {
                                th scope="col" class=[class(number)] { (heading.trim_start_matches('>')) }
                            }
                        }
                    }
                    tbody {
                        @for (place, row) in rows.take(MOST).enumerate() { (table_row(&row, links.get(place), class)) }
                    }
                }
            }
            @if all > MOST { p.fine { "and " (all - MOST) " more" } }
        }
    }
}

fn table_row(row: &[String], link: Option<&Option<String>>, class: impl Fn(usize) -> Option<&'static str>) -> Markup {
    html! {
        tr {
            @for (number, cell) in row.iter().enumerate() {
                td class=[class(number)] {
                    @match link.and_then(Option::as_ref).filter(|_| number == 0) {
                        Some(link) => a href={"#" (link)} { (cell) },
                        None => (cell),
                    }
                }
            }
        }
    }
}
