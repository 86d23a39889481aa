//! Runs on a real plugin, with a comparison of the winners. Times are SIMULATED.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use crate::support::survival;
use crate::support::survival::tuning::best_configs;

#[test]
fn killed_workers_of_a_plugin_change_no_result() {
    if let Some(seen) = survival::workers::run_real(6, 6) {
        assert_eq!(seen.kills(), 6);
    }
}

/// Each file is intact, and made for the same arguments: only its key shows that it is another program.
#[test]
fn exchanged_executables_are_compiled_again() {
    let Some(real) = survival::real::Real::new() else { return };
    let cache = real.path("cache");
    let best = |extra: &[&str]| {
        let output = real.command(&cache).args(extra).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let document = serde_json::from_slice(&output.stdout).unwrap();
        (best_configs(&document), document)
    };
    let (expected, _) = best(&[]);
    assert_eq!(expected.len(), survival::real::OPERATIONS);
    assert!(expected.iter().all(|(_, config)| *config == survival::real::Real::fastest()), "{expected:?}");
    let folder = cache.join("executables-v1");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|item| item.unwrap().path()).collect();
    files.sort();
    // the plugin's digest is kept beside them, once its file has not changed for a while
    files.retain(|path| !path.ends_with("plugins.json"));
    assert_eq!(files.len(), 3 * survival::real::OPERATIONS, "one for each program, and nothing is left behind");
    // the first gets the second's name, and so on
    let bytes: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    for (path, bytes) in files.iter().zip(bytes.iter().cycle().skip(1)) {
        fs::write(path, bytes).unwrap();
    }
    let (again, rows) = best(&["--force"]);
    assert_eq!(again, expected, "{rows:#}");
    let now: Vec<_> = files.iter().map(|path| key_of(&fs::read(path).unwrap())).collect();
    let before: Vec<_> = bytes.iter().map(|bytes| key_of(bytes)).collect();
    assert_eq!(now, before, "each was made good");
}

/// The key of a kept executable. Other parts of its header, such as the seconds of its compilation, differ between
/// compilations.
fn key_of(file: &[u8]) -> serde_json::Value {
    const HEADER: usize = 8 + 4 + 32;
    let bytes = u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[HEADER..HEADER + bytes]).unwrap();
    header["key"].clone()
}
