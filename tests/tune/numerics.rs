//! Outputs that are not bitwise the baseline's: which rule accepts or refuses them, on a simulated timer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::scripted::*;
use autotune_lowered::array::ComparedBy;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::race::OutputTolerances;
use autotune_lowered::registry::{Invocation, Registry};
use autotune_lowered::report::{HtmlReport, write_html};
use autotune_lowered::tune::{AutotuningResult, CandidateResult, CandidateStatus, OperationResult, TuneOptions};

/// How often a job begins to confirm its winner.
const CONFIRMING: usize = 3;

const MS: u64 = 1_000_000;

/// A call whose programs are not StableHLO that can be in `f64`.
fn kernel(index: u64) -> String {
    let call = "%y = stablehlo.custom_call @k(%a) : (tensor<4xf32>) -> tensor<4xf32>";
    distinct_program(index).replace(&format!("// {index}\n"), &format!("{call} // {index}\n"))
}

struct Place {
    _folder: tempfile::TempDir,
    registry: Registry,
    invocation: Arc<Invocation>,
}

impl Place {
    fn new(programs: &dyn Fn(u64) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (registry, invocation) = registry(&folder.path().join("registry"), 3, programs);
        Self { _folder: folder, registry, invocation }
    }

    fn run(&self, timer: &mut ScriptedTimer, options: &TuneOptions) -> AutotuningResult {
        tune(&self.registry, &self.invocation, timer, &Ledger::in_memory(vec![]), options, None).unwrap()
    }

    fn tune(&self, timer: &mut ScriptedTimer, options: &TuneOptions) -> OperationResult {
        self.run(timer, options).operations.remove(0)
    }
}

/// The baseline gives 1.003 and a config 1.0075. The tolerance of ones in `f32` is 4e-3.
fn timer(in_f64: Option<f64>) -> ScriptedTimer {
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    timer.outputs = vec![1.003, 1.0075, 1.0075];
    timer.in_f64 = in_f64;
    timer
}

fn refusal(row: &CandidateResult) -> &str {
    assert_eq!((row.status(), row.compared_by), (CandidateStatus::Failed, None), "{row:?}");
    &row.failure().unwrap().message
}

#[test]
fn what_is_as_near_to_the_program_in_f64_as_the_baseline_is_right() {
    // 2.5e-3 from 1.005, and the baseline 2e-3
    let mut timer = timer(Some(1.005));
    let result = Place::new(&distinct_program).run(&mut timer, &TuneOptions::default());
    let mut page = Vec::new();
    write_html(&mut page, &HtmlReport::new("hand", std::slice::from_ref(&result))).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("its outputs are as good as the baseline's in f64"));
    let found = result.operations.into_iter().next().unwrap();
    let [baseline, first, second] = found.candidates.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.best.unwrap().config, config(1));
    assert_eq!((first.compared_by, second.compared_by), (Some(ComparedBy::F64), Some(ComparedBy::F64)));
    assert_eq!((baseline.compared_by, first.differences[0].differing), (None, 4));
    let errors = &first.reference_errors[0];
    assert!((errors.own.max_absolute - 2.5e-3).abs() < 1e-6 && (errors.baseline.max_absolute - 2e-3).abs() < 1e-6);
    assert!((errors.own.rms.unwrap() - 2.5e-3 / 1.005).abs() < 1e-6, "{errors:?}");
    assert_eq!(timer.begun, 3 + CONFIRMING, "the job, one in f64 for both configs, and the job again");
    let json = serde_json::to_string(first).unwrap();
    assert!(json.contains(r#""compared_by":"f64""#), "{json}");
}

#[test]
fn what_is_further_from_the_program_in_f64_is_wrong_and_both_errors_are_told() {
    // 4.5e-3 from 1.003, and the baseline nothing
    let found = Place::new(&distinct_program).tune(&mut timer(Some(1.003)), &TuneOptions::default());
    let said = refusal(&found.candidates[1]);
    for part in [
        "output 0 differs from the baseline's in 4 of 4 elements by up to 4.500e-3, most at element 0: 1.0075",
        "(1.1 times the tolerance); from the same program in f64 it is off by up to 4.500e-3, 4.5e-3 in the root mean \
         square, the baseline by",
        "allow more with `--tolerance`",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_program_in_f64_runs_only_for_what_it_can_decide() {
    let place = Place::new(&distinct_program);
    for (outputs, by) in [([1.0, 1.0, 1.0], ComparedBy::Bitwise), ([1.0, 1.0003, 1.0003], ComparedBy::Tolerance)] {
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
        timer.outputs = outputs.to_vec();
        let found = place.tune(&mut timer, &TuneOptions::default());
        assert_eq!((timer.begun, found.candidates[1].compared_by), (1 + CONFIRMING, Some(by)));
    }
    // far beyond what two right programs are apart
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    timer.outputs = vec![1.0, 1.1, 1.0];
    let found = place.tune(&mut timer, &TuneOptions::default());
    assert!(!refusal(&found.candidates[1]).contains("f64") && timer.begun == 1 + CONFIRMING);
}

#[test]
fn without_a_program_in_f64_the_reason_is_told_and_the_tolerance_decides() {
    let cases: [(&dyn Fn(u64) -> String, &str); 2] = [
        (&kernel, "no reference in f64: `stablehlo.custom_call` depends on the width of its type"),
        (&distinct_program, "no reference in f64: execute: no f64 here"),
    ];
    for (programs, why) in cases {
        let found = Place::new(programs).tune(&mut timer(None), &TuneOptions::default());
        assert!(refusal(&found.candidates[1]).contains(why), "{found:?}");
    }
    // a baseline that is far from it itself: perhaps it sorts
    let found = Place::new(&distinct_program).tune(&mut timer(Some(2.0)), &TuneOptions::default());
    let said = refusal(&found.candidates[1]);
    let why = "in f64 is no measure, because the baseline is off by up to 9.970e-1 from it";
    assert!(said.contains("in 4 of 4 elements") && said.contains(why), "{said}");
    assert!(found.candidates[1].reference_errors.is_empty());
}

#[test]
fn a_tolerance_that_is_set_or_recorded_decides_alone() {
    let set = |tolerances| TuneOptions::default().tolerances(tolerances);
    let mut place = Place::new(&distinct_program);
    for tolerances in [OutputTolerances::default().of_all(0.01), OutputTolerances::default().of_output("0", 0.01)] {
        let mut timer = timer(None);
        let found = place.tune(&mut timer, &set(tolerances));
        assert_eq!((timer.begun, found.candidates[1].compared_by), (1 + CONFIRMING, Some(ComparedBy::Tolerance)));
    }
    let strict = OutputTolerances::default().of_all(0.0);
    let mut timer = timer(None);
    timer.outputs = vec![1.0, 1.0 + f32::EPSILON, 1.0];
    assert!(refusal(&place.tune(&mut timer, &set(strict.clone())).candidates[1]).contains("4 of 4 elements"));
    // the command line's comes before the one that is recorded with the call
    Arc::make_mut(&mut place.invocation).tolerance = Some(0.01);
    let found = place.tune(&mut self::timer(None), &TuneOptions::default());
    assert_eq!(found.candidates[1].compared_by, Some(ComparedBy::Tolerance));
    let found = place.tune(&mut self::timer(None), &set(strict));
    assert_eq!(found.candidates[1].status(), CandidateStatus::Failed);
}

/// Another tolerance is another job: what was refused under one is tried under the other.
#[test]
fn a_looser_tolerance_tries_again_what_was_refused() {
    let place = Place::new(&distinct_program);
    let ledger = Ledger::in_memory(vec![]);
    let status = |options: &TuneOptions| {
        let found = tune(&place.registry, &place.invocation, &mut timer(None), &ledger, options, None).unwrap();
        found.operations[0].candidates.get(1).map(CandidateResult::status)
    };
    assert_eq!(status(&TuneOptions::default()), Some(CandidateStatus::Failed));
    let loose = TuneOptions::default().tolerances(OutputTolerances::default().of_all(0.01));
    assert_eq!(status(&loose), Some(CandidateStatus::Measured));
}

/// Ones, of which a config has some off by 1.5 tolerances.
fn ones_but(elements: impl IntoIterator<Item = usize>) -> Vec<f32> {
    let mut values = vec![1.0; 20_000];
    elements.into_iter().for_each(|element| values[element] = 1.006);
    values
}

#[test]
fn a_few_elements_that_are_spread_are_accepted_where_other_inputs_agree() {
    let place = Place::new(&kernel);
    let tuned_by = |keeps, arrays: fn(usize, u8) -> Vec<f32>| {
        let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
        timer.info.can.compare_outputs = keeps;
        timer.arrays = Some(arrays);
        let found = place.tune(&mut timer, &TuneOptions::default());
        (timer.begun, found)
    };
    for keeps in [false, true] {
        // both configs after each other, of which the second finds the baseline's outputs again
        let (begun, found) = tuned_by(keeps, |number, _| ones_but((number > 0).then_some(7_000 * number)));
        let by = found.candidates.iter().skip(1).map(|row| row.compared_by);
        assert_eq!(
            (begun, by.collect::<Vec<_>>()),
            (7 + CONFIRMING, vec![Some(ComparedBy::Outliers); 2]),
            "{keeps}: {found:?}"
        );
    }
    let tuned = |arrays| tuned_by(false, arrays);
    // beside each other
    let (begun, found) = tuned(|number, _| ones_but((number == 1).then_some([7_777, 7_778]).into_iter().flatten()));
    assert!(refusal(&found.candidates[1]).contains("which lie together"), "{found:?}");
    assert_eq!(begun, 1 + CONFIRMING);
    // more than one in ten thousand
    let (_, found) = tuned(|number, _| ones_but((number == 1).then_some([10, 7_000, 19_000]).into_iter().flatten()));
    assert!(refusal(&found.candidates[1]).contains("in 3 of 20000 elements by up to 6.000e-3, most at element [0,10]"));
}

/// The recorded inputs begin with another byte than those that are drawn.
#[test]
fn a_few_elements_that_are_many_on_other_inputs_are_an_error() {
    let place = Place::new(&kernel);
    let first = place.registry.argument_bytes(&place.invocation, 0).unwrap()[0];
    assert_eq!(first, RECORDED, "the fill of the registry's call");
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    timer.arrays = Some(|number, first| {
        let step = if first == RECORDED { 20_000 } else { 50 };
        ones_but((0..20_000).step_by(step).filter(|_| number == 1))
    });
    let found = place.tune(&mut timer, &TuneOptions::default());
    let said = refusal(&found.candidates[1]);
    assert!(said.starts_with("on other inputs, output 0 differs from the baseline's in 400 of 20000"), "{said}");
}

/// The first byte of the call's input.
const RECORDED: u8 = 113;
