//! Sets of compiler options compared with the module in `f64`, on the simulated compiler with given outputs in `f64`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use autotune_lowered::candidates::{OptionClass, OptionSpace};
use autotune_lowered::compiler_options::OptionModule;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measure::MeasuredProgram;
use autotune_lowered::race::RaceOptions;
use autotune_lowered::tune::{CandidateResult, CandidateStatus, OperationResult, Status};

use super::compiler_options::{
    Compiler, LEVEL, Outcome, Overrides, WIDE, best, has, module, takes, tune, two_that_add_up,
};

const IN_F32: &str = "module @m {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
";

fn module_of(text: &str) -> OptionModule {
    let mut module = module();
    module.program = MeasuredProgram::of_text(text);
    module
}

type Gives = fn(&Overrides, u32) -> Outcome;

/// A compiler whose program has this output in `f64`.
fn compiler(in_f64: Result<f64, Failure>, of: Gives) -> Compiler {
    let mut compiler = Compiler::new(of);
    compiler.in_f64 = in_f64;
    compiler
}

fn tuned(timer: &mut Compiler, module: &OptionModule) -> OperationResult {
    tune(timer, &Ledger::in_memory(vec![]), module, &RaceOptions::default()).operation
}

fn row<'a>(operation: &'a OperationResult, config: &str) -> &'a CandidateResult {
    operation.candidates.iter().find(|row| row.config.as_str() == config).unwrap()
}

fn says(operation: &OperationResult, text: &str) -> bool {
    operation.flags.iter().any(|flag| flag.contains(text))
}

const WIDE_ALONE: &str = r#"{"xla_cpu_prefer_vector_width":512}"#;
const LEVEL_ALONE: &str = r#"{"xla_backend_optimization_level":1}"#;

/// Wide vectors halve the time and give 1.0065; the default gives this value.
fn wide_gives(options: &Overrides, default: f32) -> Outcome {
    if has(options, WIDE) {
        Outcome { output: 1.0065, ..takes(0.5) }
    } else {
        Outcome { output: default, ..takes(1.0) }
    }
}

/// For ones in `f32` the tolerance is 2e-3 of the element and as much of the root mean square: 4e-3. The set differs
/// from the default by less, and from one by 1.625 tolerances.
#[test]
fn a_set_whose_error_is_more_than_twice_the_defaults_is_refused() {
    // 0.75 tolerances, and 0.825
    let cases: [(Gives, Status); 2] = [
        (|options, _| wide_gives(options, 1.003), Status::BaselineKept),
        (|options, _| wide_gives(options, 1.0033), Status::Tuned),
    ];
    for (of, status) in cases {
        let mut timer = Compiler::new(of);
        let operation = tuned(&mut timer, &module_of(IN_F32));
        assert_eq!((operation.status, timer.compiled_in_f64), (status, 1), "{}", operation.reason);
        let wide = row(&operation, WIDE_ALONE);
        let found = &wide.reference_errors[0];
        assert!((found.own.of_tolerance - 1.625).abs() < 1e-3, "{found:?}");
        assert_eq!(wide.failure().is_some(), status == Status::BaselineKept);
        if let Some(failure) = wide.failure() {
            let said = "output 0 is off by up to 6.500e-3 from the same module in f64, 1.6 times the tolerance, and the \
                        default's by 3.000e-3, 0.8 times";
            // 0.75 of the `f32` nearest to 1.003 is a little more
            assert_eq!((&failure.kind, failure.message.as_str()), (&FailureKind::WrongOutput, said));
        }
    }
}

#[test]
fn what_is_closer_than_the_default_wins_and_both_errors_are_told() {
    let mut module = module_of(IN_F32);
    module.program.results = vec!["loss".to_owned()];
    let mut timer = compiler(Ok(1.005), |options, _| wide_gives(options, 1.003));
    let operation = tuned(&mut timer, &module);
    assert_eq!((operation.status, best(&operation).as_str()), (Status::Tuned, WIDE_ALONE));
    let found = &row(&operation, WIDE_ALONE).reference_errors[0];
    assert!((found.own.max_absolute - 0.0015).abs() < 1e-6 && (found.baseline.max_absolute - 0.002).abs() < 1e-6);
    assert!((found.own.of_rms.unwrap() - 0.0015 / 1.005).abs() < 1e-6, "{found:?}");
    let said = "off from the same module in f64: output 0 `loss` by up to 1.5e-3, the default's by 2.0e-3";
    assert!(says(&operation, said), "{:?}", operation.flags);
    // a set that was rejected for other outputs stays rejected; a note says that it is closer
    let mut timer = compiler(Ok(1.01), |options, _| wide_gives(options, 1.001));
    let far = tuned(&mut timer, &module);
    assert_eq!((far.status, row(&far, WIDE_ALONE).status()), (Status::BaselineKept, CandidateStatus::Failed));
    let found = &row(&far, WIDE_ALONE).reference_errors[0];
    assert!((found.own.max_absolute - 0.0035).abs() < 1e-6 && (found.baseline.max_absolute - 0.009).abs() < 1e-6);
    let said =
        "rejected for other outputs than the default's, and closer than the default to the same module in f64: xla_cpu";
    assert!(says(&far, said), "{:?}", far.flags);
    // a set that is further off than the default is rejected without a note
    let mut timer = compiler(Ok(1.0), |options, _| wide_gives(options, 1.001));
    assert!(!says(&tuned(&mut timer, &module), "closer than the default"));
}

#[test]
fn without_the_refused_set_the_next_one_wins() {
    let mut timer = Compiler::new(|options, _| match (has(options, WIDE), has(options, LEVEL)) {
        (true, is_both) => Outcome { output: 1.0065, ..takes(if is_both { 0.4 } else { 0.5 }) },
        (false, true) => Outcome { output: 1.0, ..takes(0.8) },
        (false, false) => Outcome { output: 1.003, ..takes(1.0) },
    });
    let operation = tuned(&mut timer, &module_of(IN_F32));
    assert_eq!((operation.status, best(&operation).as_str()), (Status::Tuned, LEVEL_ALONE));
    assert_eq!(row(&operation, WIDE_ALONE).failure().unwrap().kind, FailureKind::WrongOutput);
    assert!(says(&operation, "output 0 by up to 0.0e0, the default's by 3.0e-3"), "{:?}", operation.flags);
}

#[test]
fn without_a_reference_the_comparison_stays_and_the_reason_is_told() {
    let of: Gives = |options, _| wide_gives(options, 1.003);
    let crash = Err(Failure::new(FailureKind::Crash, "the worker died"));
    let call = IN_F32
        .replace("    return", "    %y = stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>\n    return");
    let mut keeping = Compiler::new(of);
    keeping.info.can.compare_outputs = true;
    let cases = [
        (compiler(crash, of), IN_F32, "the worker died", 1),
        (keeping, IN_F32, "in f64 its outputs take more than 128 MiB", 1),
        (compiler(Ok(f64::NAN), of), IN_F32, "output 0 is not finite throughout", 1),
        (Compiler::new(of), &call, "`stablehlo.custom_call` depends on the width of its type", 0),
        (Compiler::new(of), "module @m {}", "it has no floating-point type narrower than `f64`", 0),
    ];
    for (mut timer, text, why, compiled) in cases {
        let operation = tuned(&mut timer, &module_of(text));
        assert_eq!((operation.status, best(&operation).as_str()), (Status::Tuned, WIDE_ALONE), "{why}");
        let notes: Vec<&String> =
            operation.flags.iter().filter(|flag| flag.starts_with("no reference in f64: ")).collect();
        assert!(notes.len() == 1 && notes[0].contains(why), "{why}: {:?}", operation.flags);
        assert_eq!(timer.compiled_in_f64, compiled, "{why}");
        assert!(row(&operation, WIDE_ALONE).reference_errors.is_empty());
    }
}

#[test]
fn a_reference_is_run_only_for_other_outputs_and_for_fast_arithmetic() {
    let mut timer = Compiler::new(two_that_add_up);
    let operation = tuned(&mut timer, &module_of(IN_F32));
    assert_eq!((operation.status, timer.compiled_in_f64), (Status::Tuned, 0));
    let choices = OptionSpace::built_in("cpu").unwrap().choices(OptionClass::FastMath);
    let mut module = module_of(IN_F32);
    module.choices = choices.into_iter().filter(|choice| choice.name == "xla_cpu_enable_fast_math").collect();
    // the same bits, faster
    let mut timer = Compiler::new(|options, _| takes(if options.is_empty() { 1.0 } else { 0.5 }));
    let operation = tuned(&mut timer, &module);
    assert_eq!((operation.status, timer.compiled_in_f64), (Status::Tuned, 1));
    assert!(says(&operation, "off from the same module in f64: output 0 by up to 0.0e0"), "{:?}", operation.flags);
}
