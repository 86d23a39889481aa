//! Tokamax's measurements of one call: its configs with their times, and the one that it chooses.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::exchange::json_text::Members;

/// Tokamax's `BenchmarkData`. Further members are allowed, and ignored by Tokamax too.
#[derive(Deserialize)]
struct BenchmarkData {
    #[serde(rename = "compile_time_ms")]
    _compile_time_ms: f64,
    #[serde(rename = "lower_time_ms")]
    _lower_time_ms: f64,
    evaluation_times_ms: Vec<f64>,
    #[serde(rename = "metadata")]
    _metadata: Map<String, Value>,
    #[serde(rename = "peak_memory_mb", default)]
    _peak_memory_mb: Option<f64>,
}

/// The config with the least median, if any was measured, or what is wrong.
pub(super) fn fastest(data: &str) -> Result<Option<Config>, String> {
    let Members(configs) = serde_json::from_str(data).map_err(|error| format!("its data are broken: {error}"))?;
    let mut seen = BTreeSet::new();
    let mut best: Option<(f64, Config)> = None;
    for (name, measured) in configs {
        let brief = || name.chars().take(80).collect::<String>().escape_debug().to_string();
        let config: Config =
            serde_json::from_str(&name).map_err(|_| format!("its config `{}` is not a JSON object", brief()))?;
        let measured: BenchmarkData =
            serde_json::from_str(measured.get()).map_err(|error| format!("its config `{}`: {error}", brief()))?;
        let median = median(measured.evaluation_times_ms)
            .ok_or_else(|| format!("its config `{}` has no evaluation times", brief()))?;
        if !seen.insert(config.clone()) {
            return Err(format!("its config `{}` occurs twice", brief()));
        }
        if best.as_ref().is_none_or(|(least, _)| median < *least) {
            best = Some((median, config));
        }
    }
    Ok(best.map(|(_, config)| config))
}

/// numpy's median, in its own arithmetic, because the result must be the one that Tokamax sees.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    match middle.checked_sub(1).and_then(|below| values.get(below)) {
        Some(lower) if values.len().is_multiple_of(2) => Some((lower + upper) / 2.0),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(times: &str) -> String {
        format!(r#"{{"compile_time_ms":1,"lower_time_ms":2.5,"evaluation_times_ms":{times},"metadata":{{}}}}"#)
    }

    fn fastest_of(members: &[(&str, &str)]) -> Result<String, String> {
        let members: Vec<String> = members
            .iter()
            .map(|(config, times)| format!("{}:{}", Value::String((*config).to_owned()), data(times)))
            .collect();
        fastest(&format!("{{{}}}", members.join(","))).map(|config| config.unwrap().to_string())
    }

    // numpy 2.3: numpy.median([9., 1., 2.]) == 2.0, numpy.median([1., 2., 4., 9.]) == 3.0
    #[test]
    fn the_least_median_wins_and_of_equal_ones_the_first() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 4.0, 1.0, 2.0]), Some(3.0));
        assert_eq!(median(vec![]), None);
        let mean_would_differ = [(r#"{"a":1}"#, "[100,1,1]"), (r#"{"a":2}"#, "[2,2,2]")];
        assert_eq!(fastest_of(&mean_would_differ).unwrap(), r#"{"a":1}"#);
        assert_eq!(fastest_of(&[(r#"{"a":2}"#, "[3,2]"), (r#"{"a":1}"#, "[2.5]")]).unwrap(), r#"{"a":2}"#);
    }

    #[test]
    fn what_tokamax_would_refuse_is_named() {
        for (members, expected) in [
            (&[("{}", "[]")][..], "has no evaluation times"),
            (&[("[1]", "[1]")], "`[1]` is not a JSON object"),
            (&[("{", "[1]")], "`{` is not a JSON object"),
            (&[("{}", "[1e999]")], "out of range"),
            (&[("{}", "[\"1\"]")], "invalid type"),
            (&[("{}", "null")], "invalid type"),
            (&[("{\"a\":1}", "[1]"), ("{ \"a\": 1 }", "[2]")], "occurs twice"),
        ] {
            let error = fastest_of(members).unwrap_err();
            assert!(error.contains(expected), "{members:?}: {error}");
        }
        // Tokamax continues as if it had no data of such a call
        assert_eq!(fastest("{}"), Ok(None));
        assert!(fastest("{\"{}\":{\"evaluation_times_ms\":[1]}}").unwrap_err().contains("missing field"));
    }
}
