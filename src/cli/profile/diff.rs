//! `profile diff`: what became faster between two profiles.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::analysis::{DiffRow, HloFiles, ProfileDiff, Verdict, profile_diff};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::{Format, FormatArg};
use crate::report::{Grid, format_ns, write_json, write_line};

use super::input::read_any;

#[derive(Debug, Args)]
pub(crate) struct ProfileDiffArgs {
    /// The profile before: an XSpace (`.xplane.pb`), gzip of one, a log folder of TensorBoard (its newest run, all hosts); a
    /// capture of nsys-jax
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The profile after
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Count the first execution of each module on each device too
    #[arg(long)]
    pub with_warm_up: bool,
    /// Operations listed [default: 20 in the table, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    #[serde(flatten)]
    diff: ProfileDiff,
}

/// Prints differences; nothing that ran in both is exit code 3.
pub(super) fn diff(args: &ProfileDiffArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let open = |file: &PathBuf| read_any(std::slice::from_ref(file), &HloFiles::default());
    let mut diff = profile_diff(&open(&args.before)?, &open(&args.after)?, args.with_warm_up);
    let found = diff.modules.iter().any(|row| row.before.is_some() && row.after.is_some());
    match args.format.format {
        Format::Json => {
            diff.operations.truncate(args.top.unwrap_or(usize::MAX));
            write_json(out, &Document { schema: 1, diff })?;
        }
        Format::Table => write_table(out, &diff, args.top.unwrap_or(20))?,
    }
    Ok(if found { exit::FINE } else { exit::NOTHING_MATCHED })
}

fn write_table(out: &mut dyn Write, diff: &ProfileDiff, top: usize) -> io::Result<()> {
    if diff.modules.is_empty() {
        writeln!(out, "no execution was found")?;
    } else {
        grid(&diff.modules, usize::MAX, false).write(out)?;
        writeln!(out)?;
        grid(&diff.operations, top, true).write(out)?;
        if let Some(more) = diff.operations.len().checked_sub(top).filter(|more| *more > 0) {
            writeln!(out, "and {more} more (--top)")?;
        }
        let count = |verdict| diff.operations.iter().filter(|row| row.verdict == verdict).count();
        let (faster, slower, same) = (count(Verdict::Faster), count(Verdict::Slower), count(Verdict::NotTold));
        writeln!(out, "\noperations: {faster} faster, {slower} slower, {same} not told apart")?;
        writeln!(
            out,
            "time of a launch, mean of its devices; interval: 95 % for its row alone; p: for all rows together (Welch, Holm)"
        )?;
        writeln!(
            out,
            "launches of one capture share its conditions: what differs from run to run of the program is not in p"
        )?;
    }
    for note in &diff.notes {
        write_line(out, format_args!("note: {note}"))?;
    }
    Ok(())
}

fn grid(rows: &[DiffRow], top: usize, of_operations: bool) -> Grid {
    let first: &[&str] = if of_operations { &["operation", "module"] } else { &["module"] };
    let rest = [">A", ">B", ">launches", ">change", "interval", ">p", "verdict"];
    let mut grid = Grid::new(&[first, &rest].concat());
    for row in rows.iter().take(top) {
        let time = |sample: Option<crate::analysis::DiffSample>| {
            sample.map_or_else(|| "—".to_owned(), |sample| format_ns(sample.mean_ns))
        };
        let launches = |sample: Option<crate::analysis::DiffSample>| sample.map_or(0, |sample| sample.launches);
        let mut cells: Vec<String> = row.operation.iter().cloned().collect();
        cells.push(row.module.clone());
        cells.extend([
            time(row.before),
            time(row.after),
            format!("{}, {}", launches(row.before), launches(row.after)),
            row.difference_ns.map_or_else(|| "—".to_owned(), signed),
            row.interval_ns
                .map_or_else(|| "—".to_owned(), |[low, high]| format!("{} to {}", signed(low), signed(high))),
            row.p_adjusted
                .map_or_else(|| "—".to_owned(), |p| if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }),
            row.verdict.name().to_owned(),
        ]);
        grid.row(cells);
    }
    grid
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "−" } else { "+" }, format_ns(ns.abs()))
}
