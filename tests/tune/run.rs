//! Tuning runs with a simulated timer: what is measured, decided, stored, blamed and resumed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use crate::support::scripted;
use crate::support::scripted::*;
use autotune_lowered::cache::{ConfigStore, Mapping, SNAPSHOT_FILE, Snapshot, SnapshotStore};
use autotune_lowered::decision::DecisionRules;
use autotune_lowered::device::DeviceFingerprint;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::{Invocation, RecordedTarget, Registry};
use autotune_lowered::report::{Document as _, HtmlReport, write_html};
use autotune_lowered::timer::ProgramSignature;
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::timer::replay::RecordedMethod;
use autotune_lowered::tune::{CandidateStatus, Status, TuneOptions, stored_results};

const MS: u64 = 1_000_000;

fn options() -> TuneOptions {
    TuneOptions::default()
}

#[test]
fn the_fastest_wins_is_kept_and_is_not_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 4, &distinct_program);
    let cache = folder.path().join("cache");
    let mut timer = ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS, 12 * MS]);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!(operation.status, Status::Tuned);
    assert_eq!(operation.best.as_ref().unwrap().config, config(2));
    assert!((operation.speed_up.unwrap() - 2.0).abs() < 0.01, "{:?}", operation.speed_up);
    assert_eq!(operation.rounds_measured, 6, "what is clear takes no more than the fewest rounds");
    drop(ledger);

    let mut second = ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS, 12 * MS]);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    assert_eq!(ledger.notes(), &[] as &[String]);
    let again = tune(&registry, &invocation, &mut second, &ledger, &options(), None).unwrap();
    assert_eq!(again.operations[0].status, Status::Cached);
    assert_eq!(again.operations[0].best, operation.best);
    assert_eq!(second.calls, 0, "nothing may be measured again");

    let force = options().force(true);
    let mut third = ScriptedTimer::new(&[10 * MS, 8 * MS, 9 * MS, 12 * MS]);
    let forced = tune(&registry, &invocation, &mut third, &ledger, &force, None).unwrap();
    assert_eq!(forced.operations[0].rounds_measured, 6);
    assert_eq!(forced.operations[0].best.as_ref().unwrap().config, config(1), "old samples no longer count");
}

#[test]
fn an_ended_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let cache = folder.path().join("cache");
    let mut timer = ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS]);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), Some(4)).unwrap();
    assert!(result.interrupted);
    assert_eq!(result.operations[0].status, Status::Interrupted);
    assert!(ledger.cache().memory().entries().unwrap().is_empty(), "nothing is decided yet");
    drop(ledger);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.rounds_kept, operation.rounds_measured), (4, 2));
    assert_eq!(operation.best.as_ref().unwrap().config, config(2));
}

#[test]
fn more_rounds_add_to_those_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    // so noisy that eight rounds settle nothing
    let mut timer = ScriptedTimer::new(&[100 * MS, 100 * MS]);
    timer.wobble = 100;
    tune(&registry, &invocation, &mut timer, &ledger, &options().rounds(Some(8)), None).unwrap();
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options().rounds(Some(12)), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.rounds_kept, operation.rounds_measured), (8, 4));
    // settled results take no more rounds, however many are allowed
    timer.wobble = 0;
    let settled = tune(&registry, &invocation, &mut timer, &ledger, &options().rounds(Some(1000)), None);
    assert!(settled.unwrap().operations[0].rounds_measured < 100);
}

#[test]
fn one_crash_is_forgiven_and_two_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let mut crashed = false;
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(move |candidate, method, calls| {
        if candidate == 1 && method == "measure" && calls > 30 && !crashed {
            crashed = true;
            return Err(Failure::new(FailureKind::Crash, "SIGSEGV"));
        }
        Ok(())
    });
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    // one after the crash, and three that confirm
    assert_eq!(timer.restarts.len(), 1 + 3);
    assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(1), "a transient crash is no verdict");

    let ledger = Ledger::in_memory(vec![]);
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(|candidate, method, calls| {
        if candidate == 1 && method == "measure" && calls > 30 {
            return Err(Failure::new(FailureKind::Crash, "SIGSEGV"));
        }
        Ok(())
    });
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!(timer.restarts[..2], [vec![], vec![1]]);
    assert_eq!(operation.candidates[1].status(), CandidateStatus::Failed);
    assert_eq!(operation.candidates[1].failure().unwrap().kind, FailureKind::Crash);
    assert_eq!(operation.best.as_ref().unwrap().config, config(2), "the rest is decided without it");
    // an interrupted round gives a pair if both were measured before the crash
    assert!(
        (6..=7).contains(&operation.candidates[2].times().unwrap().rounds),
        "{}",
        operation.candidates[2].times().unwrap().rounds
    );
}

#[test]
fn what_broke_the_worker_is_known_even_where_no_other_can_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    for method in ["prepare", "outputs"] {
        let cache = folder.path().join(method);
        let breaking = move |candidate: usize, called: &str, _| match candidate {
            1 if called == method => Err(Failure::new(FailureKind::Crash, "SIGSEGV")),
            _ => Ok(()),
        };
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(breaking);
        timer.failing_restart = Some(2);
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
        assert_eq!(result.operations[0].status, Status::Failed);
        drop(ledger);
        // the next run continues without it
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(breaking);
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
        assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(2), "{method}");
        assert_eq!(timer.restarts, vec![Vec::<usize>::new(); 3], "{method}: only fresh processes are started");
    }
}

#[test]
fn a_winner_that_no_fresh_process_can_measure_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS]);
    timer.failing_restart = Some(1);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.status, operation.rounds_measured), (Status::Failed, 6), "{}", operation.reason);
    assert!(operation.best.is_none() && operation.speed_up.is_none() && operation.tie_set.is_empty(), "{operation:?}");
    assert!(ledger.own_entries().unwrap().is_empty());
}

#[test]
fn a_compile_failure_costs_one_candidate_a_custom_call_the_invocation() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    for (kind, status) in [(FailureKind::Compile, Status::Tuned), (FailureKind::CustomCall, Status::Failed)] {
        let ledger = Ledger::in_memory(vec![]);
        let planted = kind.clone();
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(move |candidate, method, _| {
            if candidate == 1 && method == "prepare" {
                return Err(Failure::new(planted.clone(), "needs `mosaic_gpu_v2`"));
            }
            Ok(())
        });
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
        assert_eq!(result.operations[0].status, status, "{kind}");
        if status == Status::Failed {
            assert!(result.operations[0].reason.contains("mosaic_gpu_v2"));
        } else {
            assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(2));
        }
    }
}

/// The same invocation with only the first candidates' programs; the others could not be lowered for the target.
fn lowered_in_part(invocation: &Invocation, lowered: usize, target: RecordedTarget) -> Arc<Invocation> {
    let mut part = invocation.clone();
    part.target = target;
    for candidate in &mut part.candidates[lowered..] {
        candidate.program = None;
        candidate.not_lowered = Some("ValueError: no implementation for platform=tilelang".into());
    }
    Arc::new(part)
}

fn failing_to_prepare(kind: FailureKind, from: usize) -> ScriptedTimer {
    ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(move |candidate, method, _| {
        let fails = candidate >= from && method == "prepare";
        if fails { Err(Failure::new(kind.clone(), format!("no luck with {candidate}"))) } else { Ok(()) }
    })
}

#[test]
fn where_no_other_config_can_run_the_baseline_is_kept_and_cached() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let (here, elsewhere) = (RecordedTarget::Device(device().identity), RecordedTarget::Platform("cpu".into()));
    let cases = [
        ("a plugin, recorded here", FailureKind::NoProgram, &here, Status::BaselineKept),
        ("a plugin, recorded elsewhere: a worker may build them", FailureKind::NoProgram, &elsewhere, Status::Failed),
        ("a worker that tried to build them", FailureKind::Compile, &elsewhere, Status::BaselineKept),
        ("trouble of another kind", FailureKind::Execute, &here, Status::Failed),
    ];
    for (index, (what, kind, target, status)) in cases.into_iter().enumerate() {
        let invocation = lowered_in_part(&invocation, 1, target.clone());
        let cache = folder.path().join(format!("cache-{index}"));
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let run = |ledger: &Ledger| {
            tune(&registry, &invocation, &mut failing_to_prepare(kind.clone(), 1), ledger, &options(), None).unwrap()
        };
        let result = run(&ledger);
        let operation = &result.operations[0];
        assert_eq!(operation.status, status, "{what}: {}", operation.reason);
        if status == Status::Failed {
            assert!(result.entries.is_empty(), "{what}");
            continue;
        }
        assert!(operation.reason.starts_with("no other config can run here (2 configs"), "{}", operation.reason);
        assert_eq!(operation.best.as_ref().unwrap().config, config(0));
        assert!((operation.baseline.median_ns.unwrap() / (10 * MS) as f64 - 1.0).abs() < 0.01, "it was measured");
        // the record's reason, once
        if kind == FailureKind::NoProgram {
            assert_eq!(operation.reason.matches("platform=tilelang").count(), 1, "{}", operation.reason);
        }
        // it is known afterwards: from the cache, and from the log alone
        assert_eq!(run(&ledger).operations[0].status, Status::Cached, "{what}");
        drop(ledger);
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        assert_eq!(run(&ledger).operations[0].rounds_measured, 0, "{what}");
    }
}

#[test]
fn one_that_failed_beside_those_that_cannot_run_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let invocation = lowered_in_part(&invocation, 2, RecordedTarget::Device(device().identity));
    let ledger = Ledger::in_memory(vec![]);
    // candidate 1 has a program, which the compiler refuses
    let mut timer = failing_to_prepare(FailureKind::Compile, 1);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].status, Status::Failed);
    assert!(result.operations[0].reason.contains("no luck with 1"), "{}", result.operations[0].reason);
}

#[test]
fn a_baseline_without_a_program_fails_with_the_reason_of_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let invocation = lowered_in_part(&invocation, 0, RecordedTarget::Device(device().identity));
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = failing_to_prepare(FailureKind::NoProgram, 0);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!(operation.status, Status::Failed);
    assert_eq!(operation.reason.matches("platform=tilelang").count(), 1, "{}", operation.reason);
    let mut table = Vec::new();
    (&result).write_table(&mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert_eq!(table.matches("platform=tilelang").count(), 1, "{table}");
}

#[test]
fn one_config_is_not_compared_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 1, &distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let result = tune(&registry, &invocation, &mut ScriptedTimer::new(&[MS]), &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.status, operation.reason.as_str()), (Status::BaselineKept, "there is only one config"));
}

#[test]
fn wrong_outputs_reject_the_fastest() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    for (wrong, keeps) in [1.1, f32::NAN, f32::INFINITY].into_iter().flat_map(|wrong| [(wrong, false), (wrong, true)]) {
        let ledger = Ledger::in_memory(vec![]);
        let mut timer = ScriptedTimer::new(&[10 * MS, MS, 8 * MS]).with_script(move |_, method, _| match method {
            "outputs" if keeps => Err(Failure::new(FailureKind::Protocol, "no file is to hold these")),
            _ => Ok(()),
        });
        timer.info.can.compare_outputs = keeps;
        timer.outputs[1] = wrong;
        // one call of each candidate, as in a replay, with either way of comparing
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
            if let EventKind::Called { candidate, method: RecordedMethod::Outputs, .. } = event.kind {
                seen.lock().unwrap().push(candidate);
            }
        })));
        let result = tune_told(&registry, &invocation, &mut timer, &ledger, &options(), None, &events).unwrap();
        assert_eq!(*calls.lock().unwrap(), [0, 1, 2], "keeps: {keeps}");
        let operation = &result.operations[0];
        assert_eq!(operation.best.as_ref().unwrap().config, config(2), "{wrong}, keeps: {keeps}");
        let failure = operation.candidates[1].failure().unwrap();
        assert_eq!(failure.kind, FailureKind::WrongOutput);
        assert!(failure.message.contains("in 4 of 4 elements") && failure.message.contains("element 0: "), "{failure}");
    }
}

#[test]
fn outputs_with_nothing_finite_decide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let cache = folder.path().join("cache");
    for (value, keeps) in [(f32::NAN, false), (f32::INFINITY, true)] {
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
        timer.info.can.compare_outputs = keeps;
        timer.outputs = vec![value; 3];
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
        let operation = &result.operations[0];
        assert_eq!((operation.status, operation.rounds_measured), (Status::Failed, 0), "{value}");
        assert_eq!(operation.failure.as_ref().unwrap().kind, FailureKind::NotFinite);
        assert!(operation.reason.contains("output 0 of the baseline, `f32[4]`"), "{}", operation.reason);
        assert!(operation.reason.contains("run it eagerly once"), "{}", operation.reason);
        assert!(operation.best.is_none() && result.entries.is_empty());
        assert!(ledger.own_entries().unwrap().is_empty());
    }
    // the failure was outside the programs: nothing of it is kept
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(1));
}

#[test]
fn outputs_that_are_not_there_decide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (of_results, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let run = |registry: &Registry, invocation: &Arc<Invocation>, returned: Option<&'static str>, keeps: bool| {
        let ledger = Ledger::in_memory(vec![]);
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
        (timer.returns, timer.info.can.compare_outputs) = (Some(returned), keeps);
        // a worker's own word on its programs proves nothing either
        let none = ProgramSignature::new(vec!["f32[4]".parse().unwrap()]).results(Some(Vec::new()));
        timer.signatures = (0..3).map(|candidate| (candidate, Some(none.clone()))).collect();
        let result = tune(registry, invocation, &mut timer, &ledger, &options(), None).unwrap();
        assert_eq!(result.entries.len(), ledger.own_entries().unwrap().len());
        result.operations[0].clone()
    };
    for (returned, keeps) in [(None, false), (None, true), (Some("f32[0]"), false), (Some("f32[0]"), true)] {
        let operation = run(&of_results, &invocation, returned, keeps);
        assert_eq!((operation.status, operation.rounds_measured), (Status::Failed, 0), "{returned:?}, {keeps}");
        assert_eq!(operation.failure.as_ref().unwrap().kind.as_str(), "no-outputs");
        assert!(operation.reason.contains("its recorded program has results"), "{}", operation.reason);
        assert!(operation.best.is_none());
    }
    let unknown = |index: u64| format!("module @m{{ func.func @other(%a: tensor<4xf32>) {{ // {index}\n }} }}");
    let (unknown, of_unknown) = registry(&folder.path().join("unknown"), 3, &unknown);
    let operation = run(&unknown, &of_unknown, None, false);
    assert_eq!(operation.status, Status::Failed);
    assert!(operation.reason.contains("nothing recorded says"), "{}", operation.reason);
    // only the recording can say that there is nothing to compare
    let nothing = |index: u64| format!("module @m{{ func.func public @main(%a: tensor<4xf32>) {{ // {index}\n }} }}");
    let (without_results, invocation) = registry(&folder.path().join("nothing"), 3, &nothing);
    let operation = run(&without_results, &invocation, None, false);
    assert_eq!((operation.status, operation.best.unwrap().config), (Status::Tuned, config(1)));
    let operation = run(&without_results, &invocation, Some("f32[0]"), false);
    assert_eq!(operation.status, Status::Failed, "an output that the recorded program does not have");
}

#[test]
fn weak_evidence_is_noted_beside_the_decision() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    for (value, note) in
        [(1.0, None), (3e13, Some("output 0 is huge, 3.0e13")), (0.0, Some("every output of the baseline is zero"))]
    {
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS]);
        timer.outputs = vec![value; 2];
        let result = tune(&registry, &invocation, &mut timer, &Ledger::in_memory(vec![]), &options(), None).unwrap();
        let operation = &result.operations[0];
        assert_eq!(operation.status, Status::Tuned);
        match note {
            Some(note) => assert!(operation.flags.iter().any(|flag| flag.contains(note)), "{:?}", operation.flags),
            None => assert_eq!(operation.flags, [] as [&str; 0]),
        }
    }
}

#[test]
fn a_speed_up_beyond_belief_is_said_and_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let cache = folder.path().join("cache");
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[1000 * MS, 10_000, 900 * MS]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!(operation.status, Status::NotBelieved);
    assert!(!operation.status.is_decided() && operation.best.is_none() && operation.speed_up.is_none());
    for part in ["block=1 takes 100", "the baseline's speed", "more than 1000×"] {
        assert!(operation.reason.contains(part), "`{part}` in {}", operation.reason);
    }
    let (_, advice) = operation.reason.split_once("accept it with `--max-speed-up ").unwrap();
    let advised: u64 = advice.split('`').next().unwrap().parse().unwrap();
    assert!((190_000..=210_000).contains(&advised), "twice what was seen: {advice}");
    assert!(operation.candidates[1].times().unwrap().ratio < 1e-4, "what was seen is there");
    assert!(ledger.own_entries().unwrap().is_empty());
    // a user who knows better accepts it: the rounds are there
    let mut accepting = options();
    accepting.race.rules.max_speed_up = 2e5;
    let result = tune(&registry, &invocation, &mut timer, &ledger, &accepting, None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.status, operation.rounds_measured), (Status::Tuned, 0));
    assert_eq!(operation.best.as_ref().unwrap().config, config(1));
}

#[test]
fn without_a_baseline_nothing_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(|candidate, _, _| match candidate {
        0 => Err(Failure::new(FailureKind::Compile, "no luck")),
        _ => Ok(()),
    });
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].status, Status::Failed);
    assert!(result.operations[0].reason.contains("no luck"), "{}", result.operations[0].reason);
    assert!(result.entries.is_empty());
}

#[test]
fn equal_programs_are_measured_once() {
    let folder = tempfile::tempdir().unwrap();
    // candidates 1 and 2 are one program; 0 and 3 are different ones
    let (registry, invocation) =
        registry(&folder.path().join("a"), 4, &|index| distinct_program(if index == 2 { 1 } else { index }));
    let ledger = Ledger::in_memory(vec![]);
    let mut seen = std::collections::BTreeSet::new();
    let (send, receive) = std::sync::mpsc::channel();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 1, 8 * MS]).with_script(move |candidate, _, _| {
        send.send(candidate).unwrap();
        Ok(())
    });
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    seen.extend(receive.try_iter());
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(result.operations[0].candidates[2].status(), CandidateStatus::SameProgram);
    assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(1));

    let (registry, invocation) = scripted::registry(&folder.path().join("b"), 3, &|_| distinct_program(0));
    let mut timer = ScriptedTimer::new(&[10 * MS, 10 * MS, 10 * MS]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].status, Status::BaselineKept);
    assert!(result.operations[0].reason.contains("same program"), "{}", result.operations[0].reason);
}

#[test]
fn a_changed_program_on_disk_costs_its_candidate() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("registry");
    let (_, invocation) = registry(&root, 3, &distinct_program);
    let registry = Registry::open(&root).unwrap();
    let path = registry.program_path(invocation.candidates[1].program.as_ref().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &result.operations[0];
    assert_eq!(operation.candidates[1].status(), CandidateStatus::Failed);
    assert_eq!(operation.best.as_ref().unwrap().config, config(2));

    // as long as this lasts, nothing is measured again
    let again = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!((again.operations[0].status, again.operations[0].rounds_measured), (Status::Cached, 0));

    // once repaired, it is measured with the others
    bytes[10] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mended = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(mended.operations[0].rounds_measured, 6);
    assert_eq!(mended.operations[0].best.as_ref().unwrap().config, config(1));
}

#[test]
fn a_small_gain_keeps_the_baseline_and_that_is_known_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[1000 * MS, 990 * MS]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].status, Status::BaselineKept);
    let calls = timer.calls;
    let again = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!((again.operations[0].status, timer.calls), (Status::Cached, calls));
    // the rules are applied to the existing samples
    let mut eager = options();
    eager.race.rules.min_improvement = 0.0;
    let decided = tune(&registry, &invocation, &mut timer, &ledger, &eager, None).unwrap();
    let operation = &decided.operations[0];
    assert_eq!((operation.status, operation.rounds_measured), (Status::Undecided, 0));
    // one per cent is less than processes of an unknown machine may differ
    let told = operation.confirmation.as_ref().unwrap();
    assert!(told.processes.len() == 8 && told.verdict.least_gain.unwrap() > 0.01, "{told:?}");
    assert!(operation.reason.starts_with("it varies by process"), "{}", operation.reason);
}

#[test]
fn another_environment_is_measured_again_and_flagged_at_look_up() {
    use autotune_lowered::cache::FlagKind;
    use autotune_lowered::device::MatchMode;
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS]);
    tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    timer.info.device.environment.driver = Some("999.1".into());
    let look = |ledger: &Ledger, timer: &ScriptedTimer| {
        ledger
            .cache()
            .lookup(&timer.info.device, "op@v1", "0123456789abcdef", None, MatchMode::Exact)
            .unwrap()
            .found()
            .unwrap()
    };
    let Ok(hit) = look(&ledger, &timer) else { panic!("no hit") };
    assert_eq!(hit.flags[0].kind, FlagKind::StaleEnvironment);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].rounds_measured, 6);
    let Ok(hit) = look(&ledger, &timer) else { panic!("no hit") };
    assert!(hit.flags.is_empty());
}

#[test]
fn a_shipped_entry_is_measured_here_before_it_is_called_known() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 5 * MS]);
    let first = tune(&registry, &invocation, &mut timer, &Ledger::in_memory(vec![]), &options(), None).unwrap();
    autotune_lowered::cache::write_shipped(&folder.path().join("shipped"), &first.entries).unwrap();
    let (shipped, _) = autotune_lowered::cache::ShippedConfigs::read_folder(&folder.path().join("shipped"));
    let ledger = Ledger::open(&folder.path().join("cache"), vec![Box::new(shipped)]).unwrap();
    let here = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!((here.operations[0].status, here.operations[0].rounds_measured), (Status::Tuned, 6));
    let again = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(again.operations[0].status, Status::Cached);
}

#[test]
fn the_same_program_in_other_bytes_stands_in_for_a_damaged_file() {
    use autotune_lowered::digest::Digest;
    use autotune_lowered::registry::ProgramFormat;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("registry");
    let (mut registry, invocation) = registry(&root, 3, &distinct_program);
    let text = distinct_program(1).replace("module @m", "module  @m");
    let semantic = invocation.candidates[1].program.as_ref().unwrap().semantic_digest;
    let twin = registry.writer().put_program(ProgramFormat::StablehloText, text.as_bytes(), semantic, vec![]).unwrap();
    assert_ne!(twin.digest, Digest::of(distinct_program(1).as_bytes()));
    let mut changed = invocation.as_ref().clone();
    changed.candidates[2].program = Some(twin);
    changed.recorded_at += 1;
    registry.add(&changed).unwrap();
    let invocation = std::sync::Arc::clone(&registry.invocations()[0]);
    let damaged = registry.program_path(invocation.candidates[1].program.as_ref().unwrap());
    std::fs::write(damaged, "other bytes").unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 1]);
    let ledger = Ledger::in_memory(vec![]);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(1));
    assert_eq!(result.operations[0].candidates[2].status(), CandidateStatus::SameProgram);
}

#[test]
fn a_run_publishes_what_it_decided_and_says_where_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let cache = folder.path().join("cache");
    let path = cache.join(SNAPSHOT_FILE);
    let mut timer = ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS]);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    // read while a tuner has the folder open
    let snapshot = SnapshotStore::new(Snapshot::open(&path, Mapping::WhereLocal).unwrap());
    assert_eq!(snapshot.entries().unwrap(), result.entries);
    snapshot.snapshot().verify().unwrap();
    assert!(result.notes.is_empty(), "{:?}", result.notes);

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let options = options().force(true);
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options, None).unwrap();
    assert_eq!(result.operations[0].status, Status::Tuned, "the decision stands without it");
    assert!(
        matches!(result.notes.as_slice(), [note] if note.contains("not published") && note.contains(SNAPSHOT_FILE))
    );
}

#[test]
fn a_budget_too_small_for_the_fewest_rounds_decides_nothing_and_more_time_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    let hasty = options().budget(Some(std::time::Duration::from_nanos(1)));
    let result = tune(&registry, &invocation, &mut timer, &ledger, &hasty, None).unwrap();
    let operation = &result.operations[0];
    assert_eq!((operation.status, operation.rounds_measured), (Status::Failed, 0));
    assert!(operation.reason.contains("0 rounds in 1.0ns, 6 are needed"), "{}", operation.reason);
    assert!(ledger.cache().memory().entries().unwrap().is_empty());
    let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    assert_eq!(result.operations[0].best.as_ref().unwrap().config, config(1));
}

#[test]
fn times_that_are_none_keep_the_baseline_or_decide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    for (ns, status) in [([10 * MS, 0], Status::BaselineKept), ([0, 10 * MS], Status::Failed)] {
        let ledger = Ledger::in_memory(vec![]);
        let mut timer = ScriptedTimer::new(&ns);
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
        assert_eq!(result.operations[0].status, status, "{ns:?}: {}", result.operations[0].reason);
    }
}

/// A user who changes the timer, or lets `--timer auto` choose another one, keeps earlier decisions, and is informed.
#[test]
fn what_another_timer_decided_stays_until_it_is_forced_or_asks_another_question() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let mut first = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    first.info.device.environment.plugin = Some("jaxlib 0.10.2".into());
    let tuned = tune(&registry, &invocation, &mut first, &ledger, &options(), None).unwrap();
    assert_eq!(tuned.operations[0].status, Status::Tuned);
    assert_eq!(tuned.measured_by.compiler.as_deref(), Some("jaxlib 0.10.2"));
    assert!(tuned.notes.is_empty(), "{:?}", tuned.notes);
    let mut of_other_jax = invocation.as_ref().clone();
    of_other_jax.recorded_on =
        Some(DeviceFingerprint { environment: first.info.device.environment.clone(), ..device() });
    let mut plugin = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    plugin.info.device.environment.plugin = Some("plugin.so".into());
    let planned = Arc::new(of_other_jax);
    let noted = tune(&registry, &planned, &mut plugin, &Ledger::in_memory(vec![]), &options(), None).unwrap();
    assert!(noted.notes[0].contains("under jaxlib 0.10.2 and are timed as plugin.so compiles"), "{:?}", noted.notes);

    let other = || {
        let mut timer = ScriptedTimer::new(&[10 * MS, 9 * MS, 4 * MS]);
        timer.info.name = "another".to_owned();
        timer.info.device.environment.plugin = Some("plugin.so".into());
        timer
    };
    let mut timer = other();
    let kept = tune(&registry, &invocation, &mut timer, &ledger, &options(), None).unwrap();
    let operation = &kept.operations[0];
    assert_eq!((operation.status, timer.calls), (Status::Cached, 0));
    assert_eq!(operation.best.as_ref().unwrap().config, config(1));
    let flag = "timed by `scripted` (compiled by jaxlib 0.10.2), not by `another`; `--force` measures it again";
    assert_eq!(operation.flags, [flag]);

    // other candidates are another question, and so is another cache state
    let mut fewer = invocation.as_ref().clone();
    fewer.candidates.pop();
    let fewer = tune(&registry, &Arc::new(fewer), &mut other(), &ledger, &options(), None).unwrap();
    assert_eq!(fewer.operations[0].status, Status::Tuned);

    let forced = options().force(true);
    let again = tune(&registry, &invocation, &mut other(), &ledger, &forced, None).unwrap();
    assert_eq!((again.operations[0].status, again.operations[0].flags.len()), (Status::Tuned, 0));
    assert_eq!(again.operations[0].best.as_ref().unwrap().config, config(2));
}

/// A device of 1 TFLOP/s and 100 GB/s, on which a call takes at least two milliseconds; two configs tie.
#[test]
fn of_equals_the_smaller_one_wins_and_the_result_says_how_good_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 4, &distinct_program);
    let peaks = serde_json::json!({"name": "hand", "kinds": ["simulated"], "bytes_per_second": 100e9, "matrix": {"f32": 1e12},
                                   "vector": {}, "sources": ["made up"]});
    let rules = DecisionRules::default().resolution(0.01);
    let options = options().rules(rules).peaks(serde_json::from_value(peaks).ok());
    let work = serde_json::json!({"flops": [{"unit": "matrix", "dtype": "f32", "count": 2e9}], "bytes": 1e8});
    for (bytes, winner) in [([4096, 9000, 1000, 0], 2), ([4096, 1000, 9000, 0], 1)] {
        let cache = folder.path().join(format!("cache-{winner}"));
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 5 * MS, 8 * MS]);
        timer.temporary_bytes = (0..).zip(bytes).collect();
        timer.work = (0..4).map(|candidate| (candidate, serde_json::from_value(work.clone()).unwrap())).collect();
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options, None).unwrap();
        let operation = &result.operations[0];
        assert_eq!(operation.best.as_ref().unwrap().config, config(winner), "{}", operation.reason);
        assert_eq!(operation.tie_set, [config(1), config(2)]);
        let json = serde_json::to_value(&result).unwrap();
        let json = &json["operations"][0];
        for (time, bytes, share) in [("baseline", 4096, 0.2), ("best", 1000, 0.4)] {
            assert_eq!(json[time]["temporary_bytes"], bytes);
            let work = &json[time]["work"];
            assert_eq!((&work["flops"], &work["roofline"]["least_ns"]), (&2e9.into(), &2e6.into()));
            assert!((work["roofline"]["share"].as_f64().unwrap() - share).abs() < 0.01 * share, "{work}");
        }
        let told: Vec<u64> =
            (0..4).map(|candidate| json["candidates"][candidate]["temporary_bytes"].as_u64().unwrap()).collect();
        assert_eq!(told, bytes);
        let mut table = Vec::new();
        (&result).write_table(&mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        for words in [
            " of the roof (baseline 20.0 %), bound by compute: ",
            "1.00 kB of temporary memory (baseline 4.10 kB)",
            "roof: hand, at most 1.00 TFLOP/s",
        ] {
            assert!(table.contains(words), "{words}: {table}");
        }
        let mut page = Vec::new();
        write_html(&mut page, &HtmlReport::new("hand", std::slice::from_ref(&result))).unwrap();
        let page = String::from_utf8(page).unwrap();
        for words in [
            "Of the roof</span>",
            "Temporary memory</th>",
            "data-name=\"memory\">1.00 kB<",
            "of the roof (baseline 20.0 %)",
        ] {
            assert!(page.contains(words), "{words}");
        }
        drop(ledger);

        // the log keeps these facts, for a report and for the same decision without a device
        let stored = stored_results(&cache).unwrap();
        assert_eq!(stored[0].operations[0].candidates[winner as usize].temporary_bytes, Some(1000));
        let (stored, own) = (stored[0].operations[0].best.as_ref().unwrap(), operation.best.as_ref().unwrap());
        assert_eq!((stored.temporary_bytes, stored.work.as_ref().unwrap().flops), (own.temporary_bytes, 2e9));
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let mut second = ScriptedTimer::new(&[10 * MS, 5 * MS, 5 * MS, 8 * MS]);
        let again = tune(&registry, &invocation, &mut second, &ledger, &options, None).unwrap();
        assert_eq!((again.operations[0].status, second.calls), (Status::Cached, 0));
        assert_eq!((&again.operations[0].best, &again.operations[0].baseline), (&operation.best, &operation.baseline));
    }
}
