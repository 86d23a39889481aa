//! `device --measure-peaks`: on a simulated device with known rates, and the use of its file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::prerequisite::python3;
use crate::support::program::*;
use serde_json::{Value, json};

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

#[test]
fn a_device_of_known_rates_has_these_peaks() {
    let place = Place::new();
    let timer = format!("command:{} {}", python3(), data("cli/peaks_worker.py"));
    let file = place.text("peaks.json");
    let arguments = ["device", "--measure-peaks", "--timer", &timer, "-o", &file];
    let run = place.run(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = run.json();
    // the worker counts operations in the programs' texts: only equal counts give these rates
    let is_rate = |value: &Value, rate: f64| (value.as_f64().unwrap() / rate - 1.0).abs() < 1e-6;
    let peaks = &found["peaks"];
    assert!(is_rate(&peaks["bytes_per_second"], 1.2e10), "{peaks}");
    for (unit, rates) in
        [("matrix", &[("f32", 1e10), ("f64", 5e9), ("s8", 2.5e10)][..]), ("vector", &[("f32", 2e9), ("f64", 1e9)][..])]
    {
        let measured = peaks[unit].as_object().unwrap();
        assert_eq!(measured.len(), rates.len(), "{peaks}");
        rates.iter().for_each(|(dtype, rate)| assert!(is_rate(&measured[*dtype], *rate), "{unit} {dtype}: {peaks}"));
    }
    let figures = found["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 6, "one a kind and type");
    for figure in figures {
        let [low, middle, high] = ["low", "per_second", "high"].map(|name| figure[name].as_f64().unwrap());
        assert!(0.79 * middle <= low && low <= middle && middle <= high && high <= 1.26 * middle, "{figure}");
        assert!((5..=20).contains(&figure["runs"].as_u64().unwrap()), "{figure}");
    }
    assert!(figures.iter().any(|figure| figure["low"].as_f64() < figure["high"].as_f64()), "a spread is told");
    // on this device a run of 512 rows is short, and one of 1024 is not
    let s8 = figures.iter().find(|figure| figure["dtype"] == "s8").unwrap();
    assert_eq!(s8["amount"], 2.0 * 1024_f64.powi(3));
    let left: Vec<&str> =
        found["skipped"].as_array().unwrap().iter().map(|one| one["program"].as_str().unwrap()).collect();
    assert_eq!(left, ["a product of two bf16[512,512]", "a product of two f16[512,512]", "a row times f32[4096,8192]"]);

    let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written, json!({"schema": 1, "devices": [peaks]}));
    let sources = peaks["sources"].as_array().unwrap();
    assert!(sources[0].as_str().unwrap().contains("attainable") && sources.len() == 7, "{peaks}");
    let summary = place.run(&["profile", "summary", &data("xplane/autotune6x5.xplane.pb.gz"), "--peaks", &file]);
    assert!(summary.stdout.contains("roof: measured:played, at most 25.0 GFLOP/s of matrices"), "{}", summary.stdout);

    let run = place.run(&arguments);
    for words in ["matrix", "10.0 GFLOP/s", "12.0 GB/s", "left out: a row times f32[4096,8192]", "attainable"] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
}
