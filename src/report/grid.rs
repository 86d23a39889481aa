//! Aligned columns; a row may be followed by lines of its own.

use std::io::{self, Write};

use crate::printable::printable;

use super::document::write_more;
use super::lines::heading;

/// Rows of cells, written with every column as wide as its widest cell.
#[derive(Debug, Default)]
pub struct Grid {
    rows: Vec<GridRow>,
    right: Vec<bool>,
}

#[derive(Debug)]
enum GridRow {
    Cells(Vec<String>),
    Line(String),
}

impl Grid {
    /// Makes a grid with a heading for each column; one that begins with `>` is aligned to the right.
    pub fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let cells = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![GridRow::Cells(cells)], right }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // text from a file may contain anything; a table has one line per row
        self.rows.push(GridRow::Cells(cells.into_iter().map(|cell| printable(&cell)).collect()));
    }

    /// Adds a line below the row, indented.
    pub fn line(&mut self, text: &str) {
        self.rows.push(GridRow::Line(printable(text)));
    }

    /// Says whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Writes the grid, or a line if there is no row.
    pub fn write_or(&self, out: &mut dyn Write, nothing: &str) -> io::Result<()> {
        if self.is_empty() { writeln!(out, "{nothing}") } else { self.write(out) }
    }

    /// Writes the grid.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut widths = vec![0; self.right.len()];
        for row in &self.rows {
            if let GridRow::Cells(cells) = row {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = cell.chars().count().max(*width);
                }
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            match row {
                GridRow::Line(text) => line = format!("    {text}"),
                GridRow::Cells(cells) => {
                    for ((cell, width), right) in cells.iter().zip(&widths).zip(&self.right) {
                        let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
                        let (before, after) = if *right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
                        line.extend([before, cell, after, "  "]);
                    }
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Writes a section of a document: its heading, at most `top` rows, and how many more there are. Nothing without rows.
pub(super) fn write_section<R: IntoIterator<Item = String>>(
    out: &mut dyn Write,
    title: &str,
    headings: &[&str],
    rows: impl ExactSizeIterator<Item = R>,
    top: usize,
) -> io::Result<()> {
    let all = rows.len();
    if all == 0 {
        return Ok(());
    }
    heading(out, title)?;
    let mut grid = Grid::new(headings);
    rows.take(top).for_each(|row| grid.row(row));
    grid.write(out)?;
    write_more(out, top, all, "")
}

/// Cells of displayable values.
macro_rules! cells {
    ($($cell:expr),+ $(,)?) => { [$($cell.to_string()),+] };
}
pub(super) use cells;

/// Returns a cell of a value that may be unknown.
pub(super) fn dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "—".to_owned(), text)
}
