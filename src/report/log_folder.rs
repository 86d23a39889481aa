//! The runs of a log folder.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::profile::{CaptureFile, CaptureRun};

use super::grid::cells;
use super::{Document, Grid};

#[derive(Serialize)]
struct ListDocument<'r> {
    schema: u32,
    runs: Vec<RunDocument<'r>>,
}

#[derive(Serialize)]
struct RunDocument<'r> {
    run: &'r str,
    captures: Vec<CaptureDocument<'r>>,
}

#[derive(Serialize)]
struct CaptureDocument<'r> {
    host: &'r str,
    path: String,
    bytes: u64,
    written_at: Option<u64>,
}

impl<'r> RunDocument<'r> {
    fn of(run: &'r CaptureRun) -> Self {
        Self { run: &run.name, captures: run.files.iter().map(CaptureDocument::of).collect() }
    }
}

impl<'r> CaptureDocument<'r> {
    fn of(file: &'r CaptureFile) -> Self {
        let since = file.written_at.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let written_at = since.map(|since| since.as_secs());
        Self { host: &file.host, path: file.path.display().to_string(), bytes: file.bytes, written_at }
    }
}

impl Document for &[CaptureRun] {
    fn into_json(self) -> impl Serialize {
        ListDocument { schema: 1, runs: self.iter().map(RunDocument::of).collect() }
    }

    /// Writes the newest last.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["run", "host", ">bytes", "file"]);
        for (run, file) in self.iter().flat_map(|run| run.files.iter().map(move |file| (run, file))) {
            let path = file.path.display().to_string();
            grid.row(cells![run.name, file.host, file.bytes, path]);
        }
        grid.write(out)
    }
}
