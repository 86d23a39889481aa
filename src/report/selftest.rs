//! The results of A/A calibration.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::counted::counted;
use crate::device::DeviceIdentity;
use crate::measured_by::{CacheState, Metric, Source, TOOL};
use crate::selftest::{FigureKey, Point, SelftestOptions};
use crate::timer::Timer;

use super::grid::cells;
use super::grid::dash;
use super::{Document, Grid, format_ns, format_part};

/// The result of an A/A calibration.
#[derive(Debug, Serialize)]
pub struct SelftestResult {
    /// Version of the schema.
    pub schema: u32,
    /// Program and version that measured it.
    pub tool: String,
    /// Where it ran.
    pub device: DeviceIdentity,
    /// The timer.
    pub timer: String,
    /// Its clock.
    pub source: Source,
    /// The metric: which part of an execution is its duration.
    pub metric: Metric,
    /// The state of the caches before every run.
    pub cache_state: CacheState,
    /// How often each program was loaded.
    pub copies: usize,
    /// Rounds that count.
    pub rounds: u32,
    /// The figures of each program.
    pub programs: Vec<Point>,
    /// The programs without figures.
    pub failed: Vec<FailedProgram>,
    /// The file that the figures are kept in.
    pub kept_in: Option<PathBuf>,
    /// Notes.
    pub notes: Vec<String>,
    /// Whether it ended before all programs had run.
    pub interrupted: bool,
}

/// A program without figures.
#[derive(Debug, Serialize)]
pub struct FailedProgram {
    /// Its name.
    pub program: String,
    /// Why it has none.
    pub reason: String,
}

impl SelftestResult {
    /// Begins a calibration before any program has run.
    pub fn new(timer: &dyn Timer, options: &SelftestOptions) -> Self {
        let FigureKey { device, measured_by } = FigureKey::of(timer, &options.cache_state);
        Self {
            schema: 1,
            tool: TOOL.to_owned(),
            device: device.identity,
            timer: measured_by.timer,
            source: measured_by.source,
            metric: measured_by.metric,
            cache_state: measured_by.cache_state,
            copies: options.copies,
            rounds: options.rounds,
            programs: Vec::new(),
            failed: Vec::new(),
            kept_in: None,
            notes: timer.info().notes.clone(),
            interrupted: false,
        }
    }

    /// Returns the last lines: what was run, and how the tuner uses it.
    pub fn lines(&self) -> Vec<String> {
        let Self { device, timer, metric, copies, rounds, .. } = self;
        let Some(file) = self.kept_in.as_deref().map(Path::display) else { return Vec::new() };
        vec![
            format!(
                "{copies} copies of each program, {}, on {device} with `{timer}` ({metric})",
                counted(*rounds, "round")
            ),
            format!("in `{file}`; the tuner calls no difference below the noise floor better"),
        ]
    }
}

impl Document for &SelftestResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let headings = [
            "program",
            ">time",
            ">noise floor",
            ">rounds' estimate",
            ">between processes",
            ">between copies",
            ">between rounds",
            ">false wins",
        ];
        let mut grid = Grid::new(&headings);
        for Point { program, figures, .. } in &self.programs {
            let wins = &figures.false_wins;
            grid.row(cells![
                program,
                format_ns(figures.median_ns),
                format_part(figures.resolution),
                format_part(figures.claimed),
                dash(figures.between_processes, |spread| format_part(spread.deviation)),
                format_part(figures.between_copies),
                format_part(figures.between_rounds),
                format!("{} of {}", wins.at_zero, wins.decisions)
            ]);
            if wins.at_zero > 0 {
                let (at_default, at_resolution) = (wins.at_default, wins.at_resolution);
                let can = format_part(figures.resolution);
                grid.line(&format!("of these {at_default} by more than 2 %, {at_resolution} by more than {can}"));
            }
            match figures.rounds_set_aside {
                0 => {}
                1 => grid.line("one disturbed round does not count"),
                more => grid.line(&format!("{more} disturbed rounds do not count")),
            }
        }
        for FailedProgram { program, reason } in &self.failed {
            let mut cells = vec![program.clone()];
            cells.resize(headings.len(), "—".to_owned());
            grid.row(cells);
            grid.line(reason);
        }
        grid.write_or(out, "nothing was measured")
    }
}
