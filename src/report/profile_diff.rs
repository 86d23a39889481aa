//! What changed between two profiles.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::{DiffRow, DiffSample, ProfileDiff, Verdict};

use super::document::{versioned, write_more};
use super::figures::signed_ns;
use super::grid::dash;
use super::{Document, Grid, Top, format_ns, write_notes};

impl Document for Top<ProfileDiff> {
    fn into_json(mut self) -> impl Serialize {
        self.of.operations.truncate(self.most.unwrap_or(usize::MAX));
        versioned(self.of)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let (diff, top) = (&self.of, self.most.unwrap_or(20));

        if diff.modules.is_empty() {
            writeln!(out, "no execution was found")?;
        } else {
            grid(&diff.modules, usize::MAX, false).write(out)?;
            writeln!(out)?;
            grid(&diff.operations, top, true).write(out)?;
            write_more(out, top, diff.operations.len(), " (--top)")?;
            let count = |verdict| diff.operations.iter().filter(|row| row.verdict == verdict).count();
            let (faster, slower, same) = (count(Verdict::Faster), count(Verdict::Slower), count(Verdict::NotTold));
            writeln!(out, "\noperations: {faster} faster, {slower} slower, {same} not significant")?;
            writeln!(
                out,
                "times are per launch, averaged over devices; each interval is 95 % for its row alone; p is adjusted \
                 for all rows (Welch, Holm)"
            )?;
            writeln!(
                out,
                "launches of one capture share its conditions: p does not include what differs between runs of the \
                 program"
            )?;
        }
        write_notes(out, &diff.notes)
    }
}

fn grid(rows: &[DiffRow], top: usize, of_operations: bool) -> Grid {
    let mut grid = Grid::new(&columns(of_operations));
    rows.iter().take(top).for_each(|row| grid.row(cells_of(row)));
    grid
}

/// Returns headings of [`cells_of`].
pub(super) fn columns(of_operations: bool) -> Vec<&'static str> {
    let first: &[&str] = if of_operations { &["operation", "module"] } else { &["module"] };
    [first, &[">A", ">B", ">launches", ">change", "interval", ">p", "verdict"]].concat()
}

/// Returns the cells of a module or an operation.
pub(super) fn cells_of(row: &DiffRow) -> Vec<String> {
    let time = |sample: Option<DiffSample>| dash(sample, |sample| format_ns(sample.mean_ns));
    let launches = |sample: Option<DiffSample>| sample.map_or(0, |sample| sample.launches);
    let names = row.operation.iter().chain([&row.module]).cloned();
    let cells = names.chain([
        time(row.before),
        time(row.after),
        format!("{}, {}", launches(row.before), launches(row.after)),
        dash(row.difference_ns, |ns| signed_ns(ns, "+")),
        dash(row.interval_ns, |[low, high]| format!("{} to {}", signed_ns(low, "+"), signed_ns(high, "+"))),
        dash(row.p_adjusted, |p| if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }),
        row.verdict.name().to_owned(),
    ]);
    cells.collect()
}
