//! Tuning by the share of a profiled step. The step and its HLO are synthetic, with times worked out by hand; samples
//! are simulated by `replay`, in which every best config takes half of the baseline's time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use crate::support::prerequisite::python3;
use crate::support::program::*;
use crate::support::xspace::{host, proto, space};
use serde_json::Value;

struct Place {
    folder: tempfile::TempDir,
    timer: String,
}

impl Place {
    /// A profile of a step of 1000 ns, twice: operations by length and `op_name`; the first execution is slower.
    fn new(operations: &[(&str, i64, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let replay = folder.path().join("replay.json");
        write_replay(&example().join("registry"), &replay);
        let (mut events, mut at) = (vec![], 0);
        for (run, scale) in [(1, 3), (2, 1)] {
            for &(name, length, _) in operations {
                events.push((name, "jit_step", 5, run, at, length * scale));
                at += length * scale;
            }
            at += 10_000;
        }
        std::fs::write(folder.path().join("step.xplane.pb"), space(&[host(&[&events])]).0).unwrap();
        let instructions: Vec<(&str, &str, &str)> =
            operations.iter().map(|&(name, _, op_name)| (name, "fusion", op_name)).collect();
        std::fs::write(folder.path().join("step.hlo.pb"), proto("jit_step", 5, &instructions).0).unwrap();
        Self { timer: format!("replay:{}", replay.display()), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tune(&self, more: &[&str]) -> Run {
        let (module, profile, hlo) = (module(), self.path("step.xplane.pb"), self.path("step.hlo.pb"));
        let mut arguments = vec![module.as_str(), "--timer", &self.timer, "--profile", profile.to_str().unwrap()];
        arguments.extend(["--hlo", hlo.to_str().unwrap()]);
        arguments.extend(more);
        run(&self.path("cache"), &arguments)
    }
}

const MATMUL: &str = "jit(step)/ejkernel_ops#blocked_matmul.v1:97c0056ebd3eafab/dot";
const LOSS: &str = "jit(step)/transpose(jvp(ejkernel_ops#chunked_cross_entropy.v1:cfe0c0f3e870d324))/exp";
const CUT: &str = "jit(step)/jvp(ejkernel_ops#flash_attention";

fn shares(result: &Value) -> Vec<(String, f64)> {
    let operations = result["operations"].as_array().unwrap();
    let name = |one: &Value| format!("{}:{}", one["op_id"].as_str().unwrap(), one["call_key"].as_str().unwrap());
    operations.iter().map(|one| (name(one), (one["share"].as_f64().unwrap() * 1e9).round() / 1e9)).collect()
}

#[test]
fn operations_come_by_share_and_the_gain_is_worked_by_hand() {
    let step = [("a", 150, MATMUL), ("b", 300, LOSS), ("c", 400, CUT), ("d", 100, "jit(step)/add"), ("e", 50, MATMUL)];
    let place = Place::new(&step);
    let run = place.tune(&["--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = run.json();
    let expected = [
        ("flash_attention@v2:d9a668bdbb2245c3", 0.4),
        ("chunked_cross_entropy@v1:cfe0c0f3e870d324", 0.3),
        ("blocked_matmul@v1:97c0056ebd3eafab", 0.2),
        ("blocked_matmul@v1:4a92df18023cfca8", 0.0),
    ];
    assert_eq!(shares(&result), expected.map(|(name, share)| (name.to_owned(), share)));
    let number = |name: &str| result["step"][name].as_f64().unwrap();
    assert_eq!(number("modules_ns"), 1000.0);
    assert!((number("labelled") - 0.9).abs() < 1e-12 && (number("decided") - 0.9).abs() < 1e-12);
    // half of nine tenths
    assert!((number("expected_gain") - 0.45).abs() < 1e-4, "{}", number("expected_gain"));
    assert!(number("expected_gain_low") <= number("expected_gain"));
    assert!(number("expected_gain_high") >= number("expected_gain"));
    let notes = result["notes"].to_string();
    assert!(notes.contains("1 of 4 planned calls are not in the profile"), "{notes}");

    let table = place.tune(&[]).stdout;
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("@v")).collect();
    assert!(rows[0].starts_with("flash_attention@v2") && rows[0].contains("40.0 %"), "{table}");
    let last = table.lines().last().unwrap();
    assert!(last.starts_with("expected: 45.0 % less time in the step of"), "{last}");
    assert!(last.ends_with("90.0 % of its 1.00 µs is decided here, 90.0 % is labelled"), "{last}");
}

#[test]
fn a_label_that_is_cut_is_divided_among_its_calls_and_strangers_are_said() {
    let step = [
        ("a", 600, "jit(step)/ejkernel_ops#blocked_matmul"),
        ("b", 100, "jit(step)/ejkernel_ops#unheard_of.v1:0123456789abcdef/x"),
        ("c", 300, "jit(step)/ejkernel_ops#blocked_matmul.v1:97c0056ebd3eafab/y"),
    ];
    let place = Place::new(&step);
    let result = place.tune(&["--format", "json", "--dry-run"]).json();
    let (found, flags) = (shares(&result), result["operations"][1]["flags"].to_string());
    assert_eq!(found[0], ("blocked_matmul@v1:97c0056ebd3eafab".to_owned(), 0.6));
    assert_eq!(found[1], ("blocked_matmul@v1:4a92df18023cfca8".to_owned(), 0.3));
    assert!(flags.contains("divided equally among 2 calls"), "{flags}");
    assert!(result["notes"].to_string().contains("no planned call has: `unheard_of@v1:0123456789abcdef`"));
    assert_eq!(result["step"]["expected_gain"], 0.0);
    // the share of one call does not grow if the other one is left out
    let only = place.tune(&["--format", "json", "--dry-run", "--only", "blocked_matmul@v1:4a92df18023cfca8"]).json();
    assert_eq!(shares(&only), [("blocked_matmul@v1:4a92df18023cfca8".to_owned(), 0.3)]);
}

#[test]
fn a_budget_that_is_used_up_begins_nothing_more() {
    let place = Place::new(&[("a", 1000, MATMUL)]);
    let run = place.tune(&["--format", "json", "--budget", "0.001ms"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let result = run.json();
    for operation in result["operations"].as_array().unwrap() {
        assert_eq!(operation["status"], "not-started");
        assert_eq!(operation["reason"], "the budget of the run was used up before it started");
    }
    assert_eq!((&result["step"]["decided"], &result["step"]["expected_gain"]), (&0.0.into(), &0.0.into()));
    assert_eq!(result["interrupted"], false);
    let enough = place.tune(&["--format", "json", "--budget", "2h"]);
    assert_eq!(enough.code, 0, "{}", enough.stderr);
}

#[test]
fn a_budget_in_which_no_process_could_confirm_a_winner_is_said_before_the_run() {
    let warning = "too short to confirm a winner: 3 fresh processes take";
    let worker = Place {
        timer: format!("command:{} tests/data/cli/peaks_worker.py", python3()),
        ..Place::new(&[("a", 1000, MATMUL)])
    };
    let run = worker.tune(&["--budget", "0.001ms"]);
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    let run = worker.tune(&["--budget", "2h", "--dry-run"]);
    assert!(!run.stderr.contains(warning), "{}", run.stderr);
}

#[test]
fn a_profile_without_executions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.xplane.pb");
    std::fs::write(&empty, space(&[]).bytes(4, "host").0).unwrap();
    let module = module();
    for (profile, said) in [(empty.as_path(), "holds no module execution"), (Path::new("nowhere"), "nowhere")] {
        let run = run(folder.path(), &[&module, "--timer", "replay:none", "--profile", profile.to_str().unwrap()]);
        assert_eq!(run.code, 4, "{}", run.stderr);
        assert!(run.fault().contains(said), "{}", run.stderr);
    }
}
