//! `compare`: a program against itself on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::prerequisite::{plugin, python_with};
use crate::support::program::*;

const PROGRAM: &str = "tests/data/timer/add.mlir";

#[test]
fn a_program_beside_itself_with_an_option() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let option = "xla_cpu_enable_fast_math=False";
    let plugin = plugin.display().to_string();
    let given = ["compare", PROGRAM, PROGRAM, "--options", option, "--plugin", &plugin, "--rounds", "6"];
    let run = place.run(&[&given[..], &["--timer", "pjrt", "--format", "json"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    // two arrays of four f32 and one result; on disk are the outputs of two programs, on the host also of two
    let ahead = run.stderr.lines().find(|line| line.contains("inputs and outputs take 64 bytes of ")).unwrap();
    assert!(ahead.contains(" against ") && !run.stderr.contains("[1/1]"), "{}", run.stderr);
    assert!(ahead.contains(" left on disk, 32 bytes of ") && ahead.ends_with(", 48 bytes of device memory"), "{ahead}");
    let found = run.json();
    let [first, second] = found["contestants"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!(first["outputs"]["status"], "reference");
    // a sum of two numbers has one result, however it is compiled
    assert_eq!(second["outputs"], serde_json::json!({"status": "equal", "max_error": 0.0, "compared_by": "bitwise"}));
    assert_eq!(second["options"]["xla_cpu_enable_fast_math"], "False");
    assert_eq!(first["program"], second["program"]);
    assert!(second["ratio"].as_f64().unwrap() > 0.0, "{found}");
    assert!(found["rounds"].as_u64().unwrap() >= 6 && found["noise"]["ratio"].is_number(), "{found}");
}

/// Two timers on one program: each contestant has its own, and the second one's outputs are compared with the first
/// one's.
fn side_by_side(place: &Place, given: &[&str], names: [&str; 2]) {
    let fixed = ["--timer", "pjrt", "--rounds", "6", "--no-persist", "--format", "json"];
    let run = place.run(&[&["compare", PROGRAM, PROGRAM], given, &fixed[..]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = run.json();
    let [first, second] = found["contestants"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&first["timer"], &second["timer"]), (&0.into(), &1.into()), "{found}");
    assert_eq!(
        second["outputs"],
        serde_json::json!({"status": "equal", "max_error": 0.0, "compared_by": "bitwise"}),
        "{found}"
    );
    assert!(second["ratio"].as_f64().unwrap() > 0.0 && found["noise"]["ratio"].is_number(), "{found}");
    let timers: Vec<&str> = found["timers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let [own, other] = timers[..] else { panic!("{timers:?}") };
    assert!(own.starts_with(names[0]) && other.starts_with(names[1]), "{timers:?}");
    // executables of two compilers never count as the same program
    assert!(second["same_executable"].is_null(), "{found}");
}

#[test]
fn a_program_by_two_plugins_is_compared_side_by_side() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let copied = place.text("copied.so");
    std::fs::copy(&plugin, &copied).unwrap();
    side_by_side(&place, &["--with-plugin", &copied, "--plugin", plugin.to_str().unwrap()], ["pjrt, ", "pjrt, "]);
}

#[test]
fn a_program_by_a_plugin_and_by_jax_is_compared_side_by_side() {
    let (Some(plugin), Some(python)) = (plugin(), python_with("jax")) else { return };
    let place = Place::new();
    let jax = format!("jax:{}", python.display());
    side_by_side(&place, &["--with-timer", &jax, "--plugin", plugin.to_str().unwrap()], ["pjrt, ", "jax, "]);
}
