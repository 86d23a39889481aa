//! Seconds by name, as ejkernel's profiler counts them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::profile::{Dropped, Finding, FunctionTime, Semantics};

use super::grid::cells;
use super::{Document, Grid, format_ns, write_lines};

/// Seconds by name.
#[derive(Serialize)]
#[non_exhaustive]
pub struct TimingsDocument {
    /// Version of the schema.
    pub schema: u32,
    /// Whose meaning the numbers have.
    pub semantics: Semantics,
    /// Seconds by name.
    pub timings: BTreeMap<String, f64>,
    /// Samples by name.
    pub sample_counts: BTreeMap<String, usize>,
    /// Mean and deviation by function id.
    pub functions: BTreeMap<u64, FunctionTime>,
    /// What was left out.
    pub dropped: Dropped,
    /// What was read.
    pub profiles: Vec<TimedProfile>,
    /// Samples with the devices apart.
    pub devices: Vec<DeviceSeconds>,
    /// What could mislead.
    pub findings: Vec<Finding>,
}

/// A profile that was read.
#[derive(Serialize)]
#[non_exhaustive]
pub struct TimedProfile {
    /// Where it is.
    pub path: String,
    /// Its host.
    pub host: String,
    /// The planes that were read.
    pub planes: Vec<String>,
}

/// The samples of a name on one device.
#[derive(Serialize)]
#[non_exhaustive]
pub struct DeviceSeconds {
    /// The name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// The plane.
    pub plane: String,
    /// The device, where the plane tells it.
    pub device: Option<i64>,
    /// Each sample.
    pub seconds: Vec<f64>,
}

impl Document for TimingsDocument {
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
