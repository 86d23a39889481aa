//! Which calls of a module have a config.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::config::Config;
use crate::counted::counted;
use crate::device::DeviceIdentity;
use crate::gate::Coverage;

use super::grid::cells;
use super::{Document, Grid, line};

/// The calls of a module, and which of them have a config for a device.
pub struct CoverageResult<'a> {
    /// The device.
    pub device: &'a DeviceIdentity,
    /// The calls.
    pub coverage: &'a Coverage,
    /// The fraction of them that must have one.
    pub required: f64,
}

impl<'a> CoverageResult<'a> {
    /// Joins a module's coverage on a device with the `required` fraction.
    pub fn new(device: &'a DeviceIdentity, coverage: &'a Coverage, required: f64) -> Self {
        Self { device, coverage, required }
    }
}

impl Document for CoverageResult<'_> {
    fn into_json(self) -> impl Serialize {
        let Self { device, coverage, required } = self;
        json!({
            "schema": 1, "device": device, "calls": coverage.calls, "covered": coverage.covered(), "required": required,
        })
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["operation", "evidence", ">stamps", "state", "config"]);
        for call in &self.coverage.calls {
            let state = if call.covered { "covered" } else { "missing" };
            let config = call.config.as_ref().map_or_else(String::new, Config::to_brief);
            grid.row(cells![call.label, call.evidence, call.occurrences, state, config]);
            call.reason.iter().chain(&call.flags).for_each(|line| grid.line(line));
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        let (covered, of) = (self.coverage.covered(), counted(self.coverage.calls.len(), "call"));
        line!(out, "{covered} of {of} with a config for {}", self.device)
    }
}
