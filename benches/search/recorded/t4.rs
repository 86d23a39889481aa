//! The community's T4 results.

use serde::Deserialize;
use serde_json::Value;

use super::{Recorded, outcome};
use autotune_lowered::config::Config;
use autotune_lowered::search::TrialOutcome;
use autotune_lowered::search::{NoSpace, Space};

/// A file; irrelevant members are ignored.
#[derive(Deserialize)]
pub(super) struct File {
    results: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    configuration: Config,
    #[serde(default)]
    times: Times,
    #[serde(default)]
    measurements: Vec<Measurement>,
    invalidity: Option<String>,
}

#[derive(Default, Deserialize)]
struct Times {
    #[serde(default)]
    runtimes: Vec<f64>,
}

#[derive(Deserialize)]
struct Measurement {
    name: String,
    /// A number, or the name of an error.
    value: Value,
}

pub(super) fn recorded(file: File) -> Result<Recorded, NoSpace> {
    let outcomes = file.results.iter().map(|entry| {
        let failed = entry.invalidity.as_deref().is_some_and(|invalidity| invalidity != "correct");
        let time = entry.measurements.iter().find(|measurement| measurement.name == "time");
        let single = time.and_then(|measurement| measurement.value.as_f64());
        if failed { TrialOutcome::Failed } else { outcome(&entry.times.runtimes, single) }
    });
    let outcomes = outcomes.collect();
    let space = Space::new(file.results.into_iter().map(|entry| entry.configuration))?;
    Ok(Recorded { space, outcomes, format: "t4" })
}
