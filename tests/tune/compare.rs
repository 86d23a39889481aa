//! Whole programs side by side on simulated machines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::scripted::*;
use autotune_lowered::array::{ArraySpec, ComparedBy};
use autotune_lowered::compare::{
    CompareError, CompareOptions, CompareResult, Contestant, ContestantResult, Outputs, compare,
};
use autotune_lowered::decision::{ComparisonRules, Relation};
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measure::MeasuredProgram;
use autotune_lowered::race::Runner;
use autotune_lowered::timer::{Build, ProgramSignature};

const MS: u64 = 1_000_000;

/// Contestants with different programs.
fn contestants(count: u64) -> Vec<Contestant> {
    let program = |index| MeasuredProgram::of_text(&distinct_program(index));
    (0..count).map(|index| Contestant::new(format!("step-{index}.mlir"), program(index))).collect()
}

fn run(
    timer: &mut ScriptedTimer,
    ledger: &Ledger,
    contestants: &[Contestant],
    options: &CompareOptions,
) -> Result<CompareResult, CompareError> {
    let scratch = tempfile::tempdir().unwrap();
    let (never, events) = (AtomicBool::new(false), Default::default());
    compare(&mut Runner::new(timer, ledger, &never, &events), contestants, options, scratch.path())
}

fn in_memory(timer: &mut ScriptedTimer, count: u64) -> Result<CompareResult, CompareError> {
    run(timer, &Ledger::in_memory(Vec::new()), &contestants(count), &CompareOptions::default())
}

fn relation(row: &ContestantResult) -> Option<Relation> {
    row.relation
}

#[test]
fn known_ratios_are_found_and_the_copy_is_noise() {
    // the last one is a copy of the first one, and is a little slower as long as it is loaded
    let mut timer = ScriptedTimer::new(&[10 * MS, 9 * MS, 30 * MS, 10 * MS + MS / 20, 10 * MS + MS / 10]);
    timer.executables = vec![1, 2, 3, 1, 1];
    let found = in_memory(&mut timer, 4).unwrap();
    let rows = &found.contestants;
    assert_eq!(
        rows.iter().map(relation).collect::<Vec<_>>(),
        [None, Some(Relation::Faster), Some(Relation::Slower), Some(Relation::WithinNoise)]
    );
    for (row, ratio) in rows.iter().skip(1).zip([0.9, 3.0, 1.005]) {
        assert!((row.ratio.unwrap() - ratio).abs() < 0.005, "{row:?}");
        let interval = row.interval.unwrap();
        // four intervals share an error rate of five per cent
        assert!(interval.low <= ratio && ratio <= interval.high && interval.confidence >= 0.9875, "{interval:?}");
        assert_eq!(
            (row.outputs, row.rounds),
            (Outputs::Equal { max_error: 0.0, compared_by: ComparedBy::Bitwise }, found.rounds as usize)
        );
    }
    assert_eq!((rows[0].ratio, rows[0].outputs), (None, Outputs::Reference));
    // even if executables alone decide, the same program is measured twice
    assert_eq!(rows.iter().map(|row| row.same_executable).collect::<Vec<_>>(), [None, None, None, Some(0)]);
    let noise = found.noise.as_ref().unwrap();
    assert_eq!(noise.same_executable, Some(true));
    assert!((noise.ratio.unwrap() - 1.01).abs() < 0.003 && noise.bound.unwrap() >= 0.009, "{noise:?}");
    assert!(found.is_settled && found.all_ran() && found.rounds < 60, "{found:?}");
}

#[test]
fn a_copy_that_differs_by_chance_hides_what_is_smaller() {
    let mut timer = ScriptedTimer::new(&[10 * MS, 9_600_000, 10 * MS * 105 / 100]);
    let found = in_memory(&mut timer, 2).unwrap();
    assert_eq!(found.contestants[1].relation, Some(Relation::WithinNoise));
    assert!(!found.is_settled, "more rounds might tell, and there was no time for them");
    let options = CompareOptions::default().with_copy(false);
    let ledger = Ledger::in_memory(Vec::new());
    let found = run(&mut timer, &ledger, &contestants(2), &options).unwrap();
    assert_eq!((found.contestants[1].relation, found.noise), (Some(Relation::Faster), None));
}

#[test]
fn as_many_rounds_as_asked_for_and_no_more() {
    let ledger = Ledger::in_memory(Vec::new());
    let of = |options: CompareOptions| {
        let mut timer = ScriptedTimer::new(&[MS, 2 * MS, MS]);
        timer.wobble = 0;
        run(&mut timer, &ledger, &contestants(2), &options).unwrap()
    };
    assert_eq!(of(CompareOptions::default().rounds(Some(25))).rounds, 25);
    // two comparisons with five per cent between them need at least nine rounds
    assert_eq!(of(CompareOptions::default()).rounds, 9);
    let spent = of(CompareOptions::default().budget(Some(Duration::from_nanos(1))));
    assert_eq!((spent.rounds, spent.is_settled, spent.contestants[1].relation), (0, false, None));
}

#[test]
fn what_the_log_holds_is_not_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&folder.path().join("cache"), Vec::new()).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 9 * MS, 10 * MS]);
    let options = CompareOptions::default();
    let first = run(&mut timer, &ledger, &contestants(2), &options).unwrap();
    let again = run(&mut timer, &ledger, &contestants(2), &options).unwrap();
    assert_eq!((first.rounds_kept, again.rounds_kept, again.rounds_measured), (0, first.rounds_measured, 0));
    assert_eq!((first.job, first.contestants), (again.job, again.contestants.clone()));
    assert_eq!(run(&mut timer, &ledger, &contestants(2), &options.clone().force(true)).unwrap().rounds_kept, 0);
    // other compiler options, another stage: other samples
    let mut other = contestants(2);
    other[1] = other[1].clone().build(Build::default().options([("a".to_owned(), "1".to_owned())].into()));
    assert_ne!(run(&mut timer, &ledger, &other, &options).unwrap().job, again.job);
    let staged = options.stage("finals".to_owned());
    assert_eq!(run(&mut timer, &ledger, &contestants(2), &staged).unwrap().rounds_kept, 0);
}

#[test]
fn who_fails_or_gives_other_outputs_is_told_beside_the_others() {
    let mut timer =
        ScriptedTimer::new(&[10 * MS, MS, MS, 5 * MS, 10 * MS]).with_script(|candidate, method, _| {
            match (candidate, method) {
                (2, "prepare" | "signature") => Err(Failure::new(FailureKind::Compile, "unknown option `a`")),
                _ => Ok(()),
            }
        });
    timer.outputs[1] = 2.0;
    timer.outputs[3] = 1.0005;
    let found = in_memory(&mut timer, 4).unwrap();
    let [_, other, refused, near] = found.contestants.as_slice() else { panic!("{found:?}") };
    assert_eq!((other.outputs, other.relation), (Outputs::Different, None));
    let said = other.failure.as_ref().unwrap().to_string();
    assert!(said.contains("4 of 4 elements by up to 1.000e0, most at element 0: 2, the baseline's is 1"), "{said}");
    assert_eq!(refused.outputs, Outputs::NotCompared);
    assert!(refused.failure.as_ref().unwrap().message.contains("unknown option"), "{refused:?}");
    let Outputs::Equal { max_error, compared_by: ComparedBy::Tolerance } = near.outputs else { panic!("{near:?}") };
    assert!((max_error - 0.0005).abs() < 1e-6 && near.relation == Some(Relation::Faster), "{near:?}");
    assert!(!found.all_ran() && found.is_settled);
}

#[test]
fn nothing_is_compared_with_a_first_that_fails() {
    for at in ["prepare", "signature"] {
        let mut timer = ScriptedTimer::new(&[MS; 3]).with_script(move |candidate, method, _| match candidate {
            0 if method == at => Err(Failure::new(FailureKind::Compile, "no such op")),
            _ => Ok(()),
        });
        let error = in_memory(&mut timer, 2).unwrap_err();
        assert!(error.is_of_input() && error.to_string().starts_with("`step-0.mlir`: compile: "), "{error}");
        assert!(error.to_string().contains("no such op"), "{error}");
    }
    let error = in_memory(&mut ScriptedTimer::new(&[MS; 3]), 1).unwrap_err();
    assert!(error.is_of_input() && error.to_string().contains("two or more"), "{error}");
}

#[test]
fn programs_that_take_or_give_other_arrays_are_named() {
    let arrays = |texts: &[&str]| -> Vec<ArraySpec> { texts.iter().map(|text| text.parse().unwrap()).collect() };
    let takes = ProgramSignature::new(arrays(&["f32[4]", "s32[]"]));
    let gives = ProgramSignature::new(arrays(&["f32[4]"])).results(Some(arrays(&["f32[2,2]"])));
    for (signature, said) in [
        (takes, "`step-1.mlir` takes `f32[4]`, `s32[]`, `step-0.mlir` takes `f32[4]`"),
        (gives, "`step-1.mlir` gives `f32[2,2]`, `step-0.mlir` gives `f32[4]`"),
    ] {
        let mut timer = ScriptedTimer::new(&[MS; 3]);
        timer.signatures.insert(1, Some(signature));
        let error = in_memory(&mut timer, 2).unwrap_err();
        assert!(error.is_of_input() && error.to_string().starts_with(said), "{error}");
    }
}

#[test]
fn a_difference_too_small_to_matter_ends_it() {
    let mut timer = ScriptedTimer::new(&[10 * MS, 10 * MS, 10 * MS]);
    let rules = ComparisonRules::default().min_difference(0.05);
    let options = CompareOptions::default().rules(rules);
    let found = run(&mut timer, &Ledger::in_memory(Vec::new()), &contestants(2), &options).unwrap();
    assert!(found.is_settled && found.rounds < 40, "{found:?}");
    assert_ne!(found.contestants[1].relation, Some(Relation::Faster));
}

#[test]
fn outputs_that_prove_little_are_noted_with_how_to_give_real_inputs() {
    let mut timer = ScriptedTimer::new(&[10 * MS, 9 * MS, 10 * MS]);
    timer.outputs = vec![f32::INFINITY; 3];
    timer.info.can.compare_outputs = true;
    let failed = in_memory(&mut timer, 2).unwrap_err().to_string();
    assert!(failed.contains("nothing finite") && failed.contains("`--inputs DIR`"), "{failed}");
    assert!(!failed.contains("capture_values"), "{failed}");
    timer.outputs = vec![1e9; 3];
    let notes = in_memory(&mut timer, 2).unwrap().notes;
    let told = |note: &String| note.contains("output 0 is huge, 1.0e9") && note.contains("`--fill ARGUMENT=ones`");
    assert_eq!(notes.iter().filter(|note| told(note)).count(), 1, "{notes:?}");
}
