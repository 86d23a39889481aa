//! Kernel Tuner's cache files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Recorded, outcome};
use autotune_lowered::config::Config;
use autotune_lowered::search::{NoSpace, Space};

/// A file; irrelevant members are ignored.
#[derive(Deserialize)]
pub(super) struct File {
    tune_params_keys: Vec<String>,
    /// By the config's values; the order of the keys' text is the order of the points.
    cache: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// A number, or the name of an error.
    time: Option<Value>,
    /// Raw repetitions; not numbers if the config failed.
    times: Option<Value>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

pub(super) fn recorded(file: File) -> Result<Recorded, NoSpace> {
    let mut outcomes = Vec::with_capacity(file.cache.len());
    let mut configs = Vec::with_capacity(file.cache.len());
    for mut entry in file.cache.into_values() {
        let repetitions: Vec<f64> = match entry.times {
            Some(Value::Array(times)) => times.iter().filter_map(Value::as_f64).collect(),
            _ => Vec::new(),
        };
        let single = entry.time.as_ref().and_then(Value::as_f64);
        let failed = matches!(entry.time, Some(Value::String(_)));
        outcomes.push(if failed { outcome(&[], None) } else { outcome(&repetitions, single) });
        let known = file.tune_params_keys.iter();
        let fields = known.filter_map(|name| entry.fields.remove(name).map(|value| (name.clone(), value)));
        configs.push(Config::new(fields.collect()));
    }
    Ok(Recorded { space: Space::new(configs)?, outcomes, format: "kernel-tuner" })
}
