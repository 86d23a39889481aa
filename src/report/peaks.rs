//! The measured attainable peaks of a device.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::device::DeviceIdentity;
use crate::measure::{MeasuredPeak, MeasuredPeaks, Skipped};

use super::figures::format_per_second;
use super::grid::cells;
use super::{Document, Grid, line};

/// The peaks of a device and the source of each.
pub struct PeaksOfDevice<'a> {
    /// The device.
    pub device: &'a DeviceIdentity,
    /// The timer of the programs.
    pub timer: &'a str,
    /// The measured peaks.
    pub measured: &'a MeasuredPeaks,
}

impl Document for PeaksOfDevice<'_> {
    fn into_json(self) -> impl Serialize {
        let Self { device, timer, measured: MeasuredPeaks { peaks, figures, skipped, .. } } = self;
        json!({"schema": 1, "device": device, "timer": timer, "peaks": peaks, "figures": figures, "skipped": skipped})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        line!(out, "{} with `{}`", self.device, self.timer)?;
        let mut grid = Grid::new(&["of", "dtype", ">median", ">quartiles", ">runs", "program"]);
        for MeasuredPeak { of, dtype, program, per_second, low, high, runs, .. } in &self.measured.figures {
            let rate = |rate: &f64| format!("{}{}", format_per_second(*rate), of.unit());
            grid.row(cells![
                of.name(),
                dtype,
                rate(per_second),
                format!("{}–{}", format_per_second(*low).trim_end(), rate(high)),
                runs,
                program
            ]);
        }
        grid.write(out)?;
        for Skipped { program, reason, .. } in &self.measured.skipped {
            line!(out, "left out: {program}: {reason}")?;
        }
        line!(out, "attainable with this compiler, not a data-sheet peak: other programs may exceed it")
    }
}
