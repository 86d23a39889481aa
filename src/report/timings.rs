//! Seconds by name, as ejkernel's profiler counts them.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::ProfileTimings;
use crate::profile::Dropped;

use super::grid::cells;
use super::{Document, Grid, format_ns, write_lines};

impl Document for ProfileTimings {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["name", ">time", ">samples"]);
        for (name, seconds) in &self.timings {
            let samples = self.sample_counts.get(name).copied().unwrap_or(0);
            grid.row(cells![name, format_ns(seconds * 1e9), samples]);
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        let mut grid = Grid::new(&[">function", ">mean", ">std", ">n"]);
        for (id, time) in &self.functions {
            grid.row(cells![id, format_ns(time.mean * 1e9), format_ns(time.std * 1e9), time.n]);
        }
        if !grid.is_empty() {
            writeln!(out)?;
            grid.write(out)?;
        }
        let Dropped { too_short, beyond_cap, overwritten } = self.dropped;
        for (count, what) in
            [(too_short, "too short"), (beyond_cap, "beyond the cap"), (overwritten, "overwritten by a later one")]
        {
            if count > 0 {
                writeln!(out, "left out: {count} {what}")?;
            }
        }
        write_lines(out, self.findings)
    }
}
