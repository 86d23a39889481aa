//! A test without its prerequisite prints that, and fails if CI promised it.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use crate::support::prerequisite::{Promised, plugins, present};

#[test]
fn plugins_are_files() {
    assert!(plugins().iter().all(|plugin| plugin.is_file()));
}

#[test]
fn what_nobody_promised_may_be_missing() {
    assert_eq!(present(Err::<(), _>("no GPU"), Promised::ByNobody), None);
    assert_eq!(present(Ok::<_, &str>(7), Promised::ByCi), Some(7));
}

/// One of the tests above, without a plugin.
fn without_plugin(name: &str, tests: Option<&str>) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("prerequisites::{name}")]).env("VIRTUAL_ENV", "/nowhere").env("PATH", "/nowhere");
    for variable in ["AUTOTUNE_LOWERED_TEST_PLUGIN", "AUTOTUNE_LOWERED_TESTS", "CONDA_PREFIX"] {
        child.env_remove(variable);
    }
    child.env_remove("PJRT_NAMES_AND_LIBRARY_PATHS").env_remove("PJRT_PLUGIN_LIBRARY_PATH");
    let Output { status, stdout, stderr } =
        child.envs(tests.map(|tests| ("AUTOTUNE_LOWERED_TESTS", tests))).output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_planted_lack_is_a_failure_where_ci_promised_it() {
    let (is_good, said) = without_plugin("plugins_are_files", None);
    assert!(is_good && said.contains("skipped: prerequisites::plugins_are_files: device: no PJRT plugin"), "{said}");
    let (is_good, said) = without_plugin("plugins_are_files", Some("all"));
    assert!(!is_good && said.contains("a prerequisite is missing: device: no PJRT plugin"), "{said}");
    let (is_good, said) = without_plugin("what_nobody_promised_may_be_missing", Some("all"));
    assert!(is_good && said.contains("skipped: prerequisites::what_nobody_promised_may_be_missing: no GPU"), "{said}");
}
