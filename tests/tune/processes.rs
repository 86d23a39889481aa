//! SIMULATED machines with states that a process keeps: recordings whose samples differ by process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::scripted::*;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::{Invocation, Registry};
use autotune_lowered::timer::replay::ReplayTimer;
use autotune_lowered::tune::{OperationResult, Session, Status, TuneOptions};

/// A recording in which the baseline takes 10 ms in every process, and each other config its parts of that, a process
/// after the other.
fn recording(configs: &[&[f64]]) -> ReplayTimer {
    let of = |part: f64| -> Vec<u64> { (0..6).map(|run| (part * 1e7) as u64 + 1000 * run).collect() };
    let candidate = |config: u64, epochs: Vec<Vec<u64>>| json!({"config": {"block": config}, "epochs": epochs, "outputs": [{"spec": "f32[1]", "hex": "0000803f"}]});
    let of_all = |parts: &[f64]| parts.iter().map(|part| of(*part)).collect::<Vec<_>>();
    let mut candidates = vec![candidate(0, vec![of(1.0)])];
    candidates.extend((1..).zip(configs).map(|(config, parts)| candidate(config, of_all(parts))));
    let device: Value = json!({"identity": {"platform": "cpu", "device_kind": "simulated", "hardware": {}},
        "environment": {"platform_version": "cpu"}});
    let recording = json!({"schema": 1, "device": device, "invocations": [{
        "op_id": "op@v1", "call_key": "0123456789abcdef",
        "candidates": candidates}]});
    ReplayTimer::new(serde_json::from_value(recording).unwrap()).unwrap()
}

struct Place {
    folder: tempfile::TempDir,
    registry: Registry,
    invocation: Arc<Invocation>,
}

impl Place {
    fn new() -> Self {
        Self::of(2)
    }

    /// With so many configs, the baseline among them.
    fn of(configs: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (registry, invocation) = registry(&folder.path().join("registry"), configs, &distinct_program);
        Self { folder, registry, invocation }
    }

    fn tune(&self, parts: &[f64]) -> OperationResult {
        self.tune_all(&[parts])
    }

    fn tune_all(&self, configs: &[&[f64]]) -> OperationResult {
        let ledger = Ledger::open(&self.folder.path().join("cache"), vec![]).unwrap();
        let mut timer = recording(configs);
        let mut session = Session::new(&self.registry, &ledger, &mut timer).options(TuneOptions::default());
        session.run(&planned([&self.invocation])).unwrap().operations.remove(0)
    }

    fn entries(&self) -> usize {
        Ledger::open(&self.folder.path().join("cache"), vec![]).unwrap().own_entries().unwrap().len()
    }
}

fn ratios(found: &OperationResult) -> Vec<f64> {
    let processes = &found.confirmation.as_ref().unwrap().processes;
    processes.iter().map(|process| (process.ratio * 100.0).round() / 100.0).collect()
}

#[test]
fn three_processes_that_agree_confirm_and_the_one_that_chose_does_not_count() {
    let place = Place::new();
    // the first process was luckier than the others
    let found = place.tune(&[0.5, 0.72, 0.7, 0.68, 0.7]);
    assert_eq!((found.status, ratios(&found)), (Status::Tuned, vec![0.72, 0.7, 0.68]));
    let (speed_up, interval) = (found.speed_up.unwrap(), found.speed_up_interval.unwrap());
    // the geometric mean of three
    assert!((1.0 / speed_up - (0.72_f64 * 0.7 * 0.68).cbrt()).abs() < 1e-3, "{speed_up}");
    assert!(interval.low < speed_up && speed_up < interval.high && interval.high < 2.0, "{interval:?}");
    assert_eq!(place.entries(), 1);
}

#[test]
fn what_only_the_first_process_shows_is_refuted() {
    let place = Place::new();
    let found = place.tune(&[0.7, 1.02, 1.01, 1.03]);
    assert_eq!(found.status, Status::BaselineKept, "{}", found.reason);
    assert!(found.reason.contains("not confirmed") && found.best.is_some(), "{}", found.reason);
    assert_eq!(place.entries(), 1, "that nothing is faster is a decision");
}

#[test]
fn what_varies_by_process_stays_undecided_and_goes_on_where_it_was() {
    let place = Place::new();
    let states = [0.75, 0.75, 1.1, 0.75, 1.12, 1.1, 0.76, 1.1, 0.75];
    let found = place.tune(&states);
    assert_eq!((found.status, ratios(&found)), (Status::Undecided, states[1..].to_vec()));
    assert!(found.best.is_none() && found.speed_up.is_none(), "{found:?}");
    assert!(found.reason.starts_with("it varies by process: "), "{}", found.reason);
    assert!(found.confirmation.as_ref().unwrap().verdict.least_gain.unwrap() > 0.02);
    assert_eq!(place.entries(), 0);
    // the next run chooses nothing again; its processes, the second of the recording and later, add to the others
    let again = place.tune(&[1.0, 0.75]);
    assert_eq!((again.rounds_measured, ratios(&again).len() > 8), (0, true), "{again:?}");
    assert_eq!(ratios(&again)[..8], states[1..]);
}

#[test]
fn what_fresh_processes_show_to_be_better_is_published() {
    let place = Place::of(4);
    // the second config was dropped in the first process, and is the fastest in all others
    let luck: &[f64] = &[0.5, 0.72, 0.7, 0.7, 0.71];
    let rival: &[f64] = &[0.56, 0.55, 0.56, 0.55, 0.55];
    let found = place.tune_all(&[luck, rival, &[0.95; 5]]);
    assert_eq!((found.status, &found.best.as_ref().unwrap().config), (Status::Tuned, &config(2)), "{}", found.reason);
    assert_eq!(ratios(&found), rival[1..4], "its own processes");
    assert_eq!(found.reason, "the best of 2 configs in 3 fresh processes; another one seemed faster in the first");
    let [of_first] = &found.rivals[..] else { panic!("{:?}", found.rivals) };
    assert_eq!((&of_first.config, of_first.processes), (&config(1), 3));
    let mean = luck[1..4].iter().map(|ratio| ratio.ln()).sum::<f64>() / 3.0;
    assert!((of_first.ratio.ln() - mean).abs() < 1e-3 && of_first.interval.low < of_first.ratio, "{of_first:?}");
    let again = place.tune_all(&[luck, rival, &[0.95; 5]]);
    assert_eq!((again.status, again.best.unwrap().config, again.rounds_measured), (Status::Cached, config(2), 0));
}

#[test]
fn a_rival_of_a_winner_that_only_the_first_process_shows_is_found() {
    let place = Place::of(3);
    let found = place.tune_all(&[&[0.7, 1.02, 1.01, 1.03, 1.02], &[0.75; 5]]);
    assert_eq!((found.status, found.best.unwrap().config), (Status::Tuned, config(2)), "{}", found.reason);
    // the winner would have been refuted after three
    assert_eq!(found.confirmation.unwrap().processes.len(), 4);
}
