//! Search spaces: listed, and the configs of one.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::candidates::{CandidateSpace, Spaces};
use crate::config::Config;
use crate::counted::counted;
use crate::printable::printable_json;

use super::grid::cells;
use super::{Document, Grid};

impl Document for &Spaces {
    fn into_json(self) -> impl Serialize {
        let rows: Vec<_> = self
            .iter()
            .map(|space| {
                let parameters: serde_json::Map<_, _> =
                    space.parameters().map(|(name, values)| (name.to_owned(), json!(values))).collect();
                json!({"op": space.op(), "parameters": parameters, "baseline": space.baseline()})
            })
            .collect();
        json!({"schema": 1, "spaces": rows})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["operation", ">at most", "baseline", "parameters"]);
        for space in self.iter() {
            let names: Vec<&str> = space.parameters().map(|(name, _)| name).collect();
            let (bound, baseline) = (counted(space.count_bound(), "config"), space.baseline().to_brief());
            grid.row(cells![space.op(), bound, baseline, names.join(" ")]);
        }
        grid.write(out)
    }
}

/// Configs of a space.
pub struct SpaceConfigs<'a> {
    /// The space.
    pub space: &'a CandidateSpace,
    /// Its configs, or the first of them.
    pub configs: Vec<Config>,
}

impl<'a> SpaceConfigs<'a> {
    /// Shows the configs of this space.
    pub fn new(space: &'a CandidateSpace, configs: Vec<Config>) -> Self {
        Self { space, configs }
    }
}

impl Document for SpaceConfigs<'_> {
    fn into_json(self) -> impl Serialize {
        json!({"schema": 1, "op": self.space.op(), "baseline": self.space.baseline(), "configs": self.configs})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for config in &self.configs {
            let mark = if config == self.space.baseline() { " (baseline)" } else { "" };
            writeln!(out, "{}{mark}", printable_json(&config.to_string()))?;
        }
        Ok(())
    }
}
