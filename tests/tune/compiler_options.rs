//! Compiler options of whole modules, on a simulated compiler: the effect of each set on a program's time is given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use autotune_lowered::array::{Reference, SpecialKind, Tolerance};
use autotune_lowered::candidates::{OptionClass, OptionSpace};
use autotune_lowered::compiler_options::{OptionModule, TunedOptions, tune_compiler_options};
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measure::MeasuredProgram;
use autotune_lowered::measured_by::Source;
use autotune_lowered::race::{QuietWait, RaceOptions, Runner};
use autotune_lowered::timer::events::Events;
use autotune_lowered::timer::protocol::{ComparedOutput, KeptOutput};
use autotune_lowered::timer::{
    Job, OutputArray, OutputsAs, Prepared, ProgramSignature, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerInfo,
};
use autotune_lowered::tune::{CandidateStatus, OperationResult, RaceStage, Status};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::scripted::device;

pub(super) type Overrides = BTreeMap<String, String>;

/// The simulated compiler's result for a set of options.
pub(super) struct Outcome {
    /// The program's time relative to the default.
    pub(super) factor: f64,
    /// The program's output.
    pub(super) output: f32,
    pub(super) fails: Option<(&'static str, Failure)>,
}

pub(super) fn takes(factor: f64) -> Outcome {
    Outcome { factor, output: 1.0, fails: None }
}

pub(super) struct Compiler {
    pub(super) info: TimerInfo,
    pub(super) of: fn(&Overrides, u32) -> Outcome,
    /// Programs with another behaviour.
    pub(super) others: BTreeMap<Digest, fn(&Overrides, u32) -> Outcome>,
    random: ChaCha8Rng,
    /// Relative scatter of one run.
    scatter: f64,
    job: Option<Job>,
    pub(super) compiled: usize,
    /// How often a program's signature was asked for, and how often a program was run for its time.
    pub(super) asked: usize,
    pub(super) measured: usize,
    /// Ends the run after this many calls of either kind.
    pub(super) ends_after: usize,
    pub(super) cancel: Arc<AtomicBool>,
    kept: Option<Reference>,
    /// The program's output for inputs in `f64`, and how often it was compiled for them.
    pub(super) in_f64: Result<f64, Failure>,
    pub(super) compiled_in_f64: usize,
}

impl Compiler {
    pub(super) fn new(of: fn(&Overrides, u32) -> Outcome) -> Self {
        let random = ChaCha8Rng::seed_from_u64(1);
        let (device, others) = (device(), BTreeMap::new());
        let mut info = TimerInfo::new("simulated", Source::HostWall, device);
        info.can.set_process_options = true;
        let (job, compiled, asked, measured, kept) = (None, 0, 0, 0, None);
        let (ends_after, cancel) = (usize::MAX, Arc::default());
        Self {
            info,
            of,
            others,
            random,
            scatter: 0.004,
            job,
            compiled,
            asked,
            measured,
            ends_after,
            cancel,
            kept,
            in_f64: Ok(1.0),
            compiled_in_f64: 0,
        }
    }

    /// Whether the job is the program in `f64`, with exactly the others' input values.
    fn is_in_f64(&self) -> bool {
        let job = self.job.as_ref().unwrap();
        if job.inputs[0].spec.to_string() != "f64[4]" {
            return false;
        }
        assert_eq!(std::fs::metadata(&job.inputs[0].path).unwrap().len(), 32);
        let program = std::fs::read_to_string(&job.candidates[0].program.as_ref().unwrap().path).unwrap();
        assert!(program.contains("tensor<4xf64>") && !program.contains("f32"), "{program}");
        true
    }

    fn count(&mut self, asked: usize, measured: usize) {
        (self.asked, self.measured) = (self.asked + asked, self.measured + measured);
        self.cancel.fetch_or(self.asked + self.measured >= self.ends_after, Ordering::Relaxed);
    }

    fn outcome(&self, candidate: usize, at: &str) -> Result<Outcome, Failure> {
        let candidate = &self.job.as_ref().unwrap().candidates[candidate];
        let (build, program) = (&candidate.build, candidate.program.as_ref().unwrap().program.digest);
        let of = self.others.get(&program).copied().unwrap_or(self.of);
        // options of the compiling process have dashes here
        let process = build.process.iter().map(|(name, value)| (format!("--{name}"), value.clone()));
        let outcome = of(&build.options.clone().into_iter().chain(process).collect(), build.copy);
        match outcome.fails {
            Some((place, failure)) if place == at => Err(failure),
            _ => Ok(outcome),
        }
    }
}

impl Compiler {
    fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.count(0, 1);
        let factor = self.outcome(candidate, "run")?.factor;
        let mut run = || {
            let chance = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
            (1e6 * factor * (1.0 + self.scatter * chance)) as u64
        };
        Ok((0..runs).map(|_| run()).collect())
    }
}

impl Timer for Compiler {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.job = Some(job.clone());
        Ok(())
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.count(1, 0);
        self.outcome(candidate, "compile").map(|_| Some(ProgramSignature::new(vec!["f32[4]".parse().unwrap()])))
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let outcome = self.outcome(candidate, "compile")?;
        self.compiled += 1;
        if self.is_in_f64() {
            self.compiled_in_f64 += 1;
            self.in_f64.clone()?;
        }
        // equal times mean equal code
        Ok(Prepared::new(1).executable(Some(Digest::of(&outcome.factor.to_le_bytes()))))
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.times(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        if let OutputsAs::Compared(tolerances) = taken {
            let kept = self.kept.clone().unwrap().within(tolerances[0]);
            let compared = ComparedOutput::of(kept.spec().clone(), &self.output(candidate)?, Some(&kept));
            return Ok(TakenOutputs::Compared(vec![compared]));
        }
        let bytes = self.output(candidate)?;
        if self.info.can.compare_outputs {
            assert!(matches!(taken, OutputsAs::KeptAbove(_)), "a file");
            let kept = self.kept.insert(Reference::new("f32[4]".parse().unwrap(), bytes, Tolerance::EXACT));
            return Ok(TakenOutputs::Kept(vec![KeptOutput::of(kept)]));
        }
        let scratch = &self.job.as_ref().unwrap().scratch;
        let (spec, bytes) = match self.is_in_f64() {
            true => ("f64[4]", self.in_f64.clone()?.to_le_bytes().repeat(4)),
            false => ("f32[4]", bytes),
        };
        let written = OutputArray::write(spec.parse().unwrap(), &bytes, scratch).unwrap();
        Ok(TakenOutputs::Files(vec![written]))
    }

    fn restart(&mut self, _without: &[usize]) -> Result<(), Failure> {
        self.info.epoch += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.job = None;
    }
}

impl Compiler {
    /// A candidate's output, computed from the first input.
    fn output(&self, candidate: usize) -> Result<Vec<u8>, Failure> {
        let output = self.outcome(candidate, "run")?.output;
        let job = self.job.as_ref().unwrap();
        let mut bytes = output.to_le_bytes().repeat(4);
        // a sum, which fast arithmetic assumes to be finite
        let input = std::fs::read(&job.inputs[0].path).unwrap();
        let is_nan = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap()).is_nan();
        let is_fast = job.candidates[candidate].build.options.contains_key("xla_cpu_enable_fast_math");
        if !is_fast && input.chunks_exact(4).any(is_nan) {
            bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        Ok(bytes)
    }
}

pub(super) fn module() -> OptionModule {
    let choices = OptionSpace::built_in("cpu").unwrap().choices(OptionClass::Safe);
    OptionModule::new(MeasuredProgram::of_text("module @m {}"), Ok(Digest::of(b"text")), choices)
}

pub(super) fn tune(
    timer: &mut Compiler,
    ledger: &Ledger,
    module: &OptionModule,
    options: &RaceOptions,
) -> TunedOptions {
    let cancel = Arc::clone(&timer.cancel);
    let events = Events::default();
    tune_compiler_options(&mut Runner::new(timer, ledger, &cancel, &events), module, options).unwrap()
}

fn tuned(of: fn(&Overrides, u32) -> Outcome) -> OperationResult {
    let ledger = Ledger::in_memory(vec![]);
    tune(&mut Compiler::new(of), &ledger, &module(), &RaceOptions::default()).operation
}

pub(super) fn best(operation: &OperationResult) -> String {
    operation.best.as_ref().unwrap().config.as_str().to_owned()
}

pub(super) const WIDE: (&str, &str) = ("xla_cpu_prefer_vector_width", "512");
pub(super) const LEVEL: (&str, &str) = ("xla_backend_optimization_level", "1");

pub(super) fn has(options: &Overrides, (name, value): (&str, &str)) -> bool {
    options.get(name).is_some_and(|set| set == value)
}

/// Times with neither, the level alone, the wide vectors alone, and both.
fn of_two(options: &Overrides, [neither, level, wide, both]: [f64; 4]) -> Outcome {
    takes(match (has(options, WIDE), has(options, LEVEL)) {
        (false, false) => neither,
        (false, true) => level,
        (true, false) => wide,
        (true, true) => both,
    })
}

pub(super) fn two_that_add_up(options: &Overrides, _copy: u32) -> Outcome {
    of_two(options, [1.0, 0.8, 0.7, 0.56])
}

pub(super) fn wide_halves(options: &Overrides, _copy: u32) -> Outcome {
    takes(if has(options, WIDE) { 0.5 } else { 1.0 })
}

pub(super) fn wide_crashes(options: &Overrides, _copy: u32) -> Outcome {
    let crash = Failure::new(FailureKind::Crash, "the worker died of SIGSEGV");
    Outcome { fails: has(options, WIDE).then_some(("run", crash)), ..takes(1.0) }
}

#[test]
fn options_that_add_up_are_found_and_the_second_run_measures_nothing() {
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = Compiler::new(two_that_add_up);
    let TunedOptions { operation, entry, .. } = tune(&mut timer, &ledger, &module(), &RaceOptions::default());
    assert_eq!(operation.status, Status::Tuned, "{}", operation.reason);
    assert_eq!(best(&operation), r#"{"xla_backend_optimization_level":1,"xla_cpu_prefer_vector_width":512}"#);
    // 1 / (0.7 * 0.8)
    assert!((operation.speed_up.unwrap() - 1.786).abs() < 0.02, "{:?}", operation.speed_up);
    its_rows_say_which_race_they_are_of(&operation);
    let (key, entry) = entry.unwrap();
    assert_eq!((key.call.op_id.as_str(), key.call.call_key), ("compiler_options@v1", Digest::of(b"text").to_string()));
    assert_eq!(entry.config.as_str(), best(&operation));
    let row = |text: &str| operation.candidates.iter().find(|row| row.config.as_str() == text).unwrap();
    let same = row(r#"{"xla_llvm_disable_expensive_passes":true}"#);
    assert_eq!(same.status(), CandidateStatus::SameProgram, "it compiles to the base's executable");

    let compiled = timer.compiled;
    let again = tune(&mut timer, &ledger, &module(), &RaceOptions::default());
    assert_eq!((again.operation.status, timer.compiled), (Status::Cached, compiled));
    // another question needs another search
    let mut other = module();
    other.choices.truncate(3);
    assert_eq!(tune(&mut timer, &ledger, &other, &RaceOptions::default()).operation.status, Status::Tuned);
}

/// The winner has the numbers of the last race, as the headline does, and every other set those of the last one that it
/// was in.
fn its_rows_say_which_race_they_are_of(operation: &OperationResult) {
    let rows = |stage| operation.candidates.iter().filter(move |row| row.race.is_some_and(|race| race.stage == stage));
    let winner = rows(RaceStage::Last).find(|row| row.config.as_str() == best(operation)).unwrap();
    let (times, headline) = (winner.times().unwrap(), operation.speed_up_interval.unwrap());
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(near(times.ratio, 1.0 / operation.speed_up.unwrap()));
    assert!(near(times.interval.low, 1.0 / headline.high) && near(times.interval.high, 1.0 / headline.low));
    assert!(near(times.interval.confidence, headline.confidence));
    // the default, both options alone, and the two together
    assert_eq!(rows(RaceStage::Last).count(), 4);
    assert!(near(winner.race.unwrap().baseline_ns, operation.baseline.median_ns.unwrap()));
    assert!(
        rows(RaceStage::Alone).count() > 0
            && rows(RaceStage::Last).chain(rows(RaceStage::Alone)).all(|row| {
                let (race, times) = (row.race.unwrap(), row.times().unwrap());
                (times.ratio * race.baseline_ns / times.median_ns - 1.0).abs() < 0.02
            })
    );
    let tied: Vec<_> = operation.candidates.iter().filter(|row| row.tied_with_best).collect();
    assert!(tied.len() == 1 && tied[0].config == winner.config, "{tied:?}");
}

#[test]
fn the_rounds_of_all_races_count_and_also_where_the_default_stays() {
    for of in [(|_, _| takes(1.0)) as fn(&Overrides, u32) -> Outcome, two_that_add_up] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
        let operation = tune(&mut Compiler::new(of), &ledger, &module(), &RaceOptions::default()).operation;
        drop(ledger);
        let log = std::fs::read(folder.path().join("cache/samples-v1.log")).unwrap();
        let log = String::from_utf8_lossy(&log);
        let of = |text: &str| log.matches(text).count();
        let rounds = of(r#""record":"round""#) - of(r#""confirming":true"#);
        assert!(operation.status.is_decided() && operation.status != Status::Cached, "{}", operation.reason);
        assert_eq!(operation.rounds_measured as usize, rounds);
    }
}

#[test]
fn what_is_ended_before_its_first_round_does_not_claim_samples() {
    let ended = |after: usize| {
        let mut timer = Compiler::new(two_that_add_up);
        timer.ends_after = after;
        tune(&mut timer, &Ledger::in_memory(vec![]), &module(), &RaceOptions::default()).operation
    };
    let (at_once, later) = (ended(1), ended(200));
    assert_eq!((at_once.status, later.status), (Status::Interrupted, Status::Interrupted));
    assert_eq!((at_once.rounds_measured, &*at_once.reason), (0, "ended by the user; nothing measured yet"));
    assert!(later.rounds_measured > 0 && later.reason.ends_with("its samples are kept"), "{}", later.reason);
}

/// On other platforms than the CPU, XLA measures while it compiles, so equal code is luck: every value is timed by
/// itself.
#[test]
fn on_a_gpu_values_with_equal_executables_are_timed_one_by_one() {
    let on = |platform: &str| {
        let mut timer = Compiler::new(two_that_add_up);
        platform.clone_into(&mut timer.info.device.identity.platform);
        tune(&mut timer, &Ledger::in_memory(vec![]), &module(), &RaceOptions::default()).operation
    };
    let counts = |operation: &OperationResult| {
        let rows = || operation.candidates.iter();
        let same = rows().filter(|row| row.status() == CandidateStatus::SameProgram).count();
        (same, rows().filter(|row| row.times().is_some()).count())
    };
    let (cpu, gpu) = (on("cpu"), on("cuda"));
    let (singles, (same, measured)) = (module().choices.len(), counts(&cpu));
    // only the level and the wide vectors change the code; the rest gives the default's
    assert!(same >= singles - 2 && measured >= 4, "{same} of {singles}, {measured}");
    let (same, measured) = counts(&gpu);
    assert!(same == 0 && measured > singles, "{same} of {singles}, {measured}");
    assert!(gpu.flags.iter().any(|flag| flag.contains(", 0 with the same executable")), "{:?}", gpu.flags);
    assert_eq!((gpu.status, best(&gpu)), (Status::Tuned, best(&cpu)));
}

#[test]
fn what_does_nothing_alone_is_found_beside_what_it_helps() {
    // the level alone changes the code, but does not make it faster
    let operation = tuned(|options, _| of_two(options, [1.0, 1.005, 0.5, 0.4]));
    assert_eq!(best(&operation), r#"{"xla_backend_optimization_level":1,"xla_cpu_prefer_vector_width":512}"#);
}

#[test]
fn what_adds_nothing_is_left_out_of_the_set() {
    // the wide vectors give nearly all; the level adds a third of a per cent
    let operation = tuned(|options, _| of_two(options, [1.0, 0.9, 0.5, 0.4985]));
    assert_eq!(best(&operation), r#"{"xla_cpu_prefer_vector_width":512}"#);
}

/// Times that scatter by a fifth without a difference: of many choices, some look far better in a few rounds.
#[test]
fn the_luck_of_the_first_rounds_wins_nothing() {
    for seed in 0..10 {
        let mut timer = Compiler::new(|options, _| {
            // each gets a different executable
            let name = options.iter().next().map(|(name, value)| name.len() + value.len()).unwrap_or_default();
            takes(1.0 + 1e-7 * name as f64)
        });
        (timer.scatter, timer.random) = (0.4, ChaCha8Rng::seed_from_u64(seed));
        let ledger = Ledger::in_memory(vec![]);
        let operation = tune(&mut timer, &ledger, &module(), &RaceOptions::default()).operation;
        assert_eq!(operation.status, Status::BaselineKept, "seed {seed}: {}", best(&operation));
    }
}

/// Another process uses the device all the time. What no interval excludes is not denied; what all exclude is.
#[test]
fn beside_another_process_a_gain_that_is_not_excluded_is_undecided() {
    for (scatter, status) in [(0.4, Status::Undecided), (0.004, Status::BaselineKept)] {
        let mut timer = Compiler::new(|options, _| takes(1.0 + 1e-7 * options.len() as f64));
        (timer.scatter, timer.info.others_use) = (scatter, Some(0.9));
        let options = RaceOptions::default().quiet(QuietWait::new(Duration::ZERO));
        let operation = tune(&mut timer, &Ledger::in_memory(vec![]), &module(), &options).operation;
        assert_eq!(operation.status, status, "{operation:?}");
        let says = operation.reason.contains("other processes used the cores, which hides gains");
        assert_eq!((says, operation.best.is_none()), (scatter > 0.1, scatter > 0.1), "{operation:?}");
    }
}

#[test]
fn a_default_that_crashes_is_rescued_by_the_first_set_that_runs() {
    let operation = tuned(|options, _| {
        let crash = Failure::new(FailureKind::Crash, "the worker died of SIGSEGV");
        let factor = if has(options, WIDE) { 0.5 } else { 1.0 };
        let fails = (!has(options, LEVEL)).then_some(("run", crash));
        Outcome { fails, ..takes(factor) }
    });
    assert_eq!(operation.status, Status::Tuned, "{}", operation.reason);
    assert_eq!(operation.baseline.config.as_str(), r#"{"xla_backend_optimization_level":1}"#);
    assert_eq!(best(&operation), r#"{"xla_backend_optimization_level":1,"xla_cpu_prefer_vector_width":512}"#);
    assert!(operation.flags.iter().any(|flag| flag.contains("SIGSEGV")), "{:?}", operation.flags);
    // the default has a row with a reason, and so have the options tried before the level
    let failed = operation.candidates.iter().filter_map(|row| Some((row.config.as_str(), row.failure()?)));
    let failed: BTreeMap<&str, &Failure> = failed.collect();
    assert_eq!(failed["{}"].to_string(), "crash: the worker died of SIGSEGV");
    assert!(failed.contains_key(r#"{"xla_cpu_use_xnnpack":false}"#), "{failed:?}");
}

/// The behaviour of the rank-7 reduction of docs/options.md on jaxlib 0.10.2.
#[test]
fn what_switches_something_off_is_tried_first_as_a_rescue() {
    let operation = tuned(|options, _| {
        let crash = Failure::new(FailureKind::Crash, "the worker died of SIGSEGV");
        let fails = (!has(options, ("xla_cpu_experimental_ynn_fusion_type", ""))).then_some(("run", crash));
        Outcome { fails, ..takes(1.0) }
    });
    assert_eq!((operation.status, best(&operation)), (Status::Tuned, operation.baseline.config.as_str().to_owned()));
    assert_eq!(best(&operation), r#"{"xla_cpu_experimental_ynn_fusion_type":""}"#);
    let failed = operation.candidates.iter().filter(|row| row.failure().is_some());
    assert_eq!(failed.map(|row| row.config.as_str()).collect::<Vec<_>>(), ["{}"], "{:?}", operation.flags);
}

#[test]
fn refusals_and_other_outputs_are_out_with_their_reasons() {
    let operation = tuned(|options, _| {
        if has(options, WIDE) {
            return Outcome { output: 2.0, ..takes(0.1) };
        }
        let refusal = Failure::new(FailureKind::Compile, "No such compile option: 'xla_backend_optimization_level'");
        let fails = options.contains_key(LEVEL.0).then_some(("compile", refusal));
        Outcome { fails, ..takes(1.0) }
    });
    assert_eq!((operation.status, best(&operation).as_str()), (Status::BaselineKept, "{}"));
    let kind = |text: &str| {
        let row = operation.candidates.iter().find(|row| row.config.as_str() == text).unwrap();
        row.failure().unwrap().kind.clone()
    };
    assert_eq!(kind(r#"{"xla_cpu_prefer_vector_width":512}"#), FailureKind::WrongOutput);
    assert_eq!(kind(r#"{"xla_backend_optimization_level":1}"#), FailureKind::Compile);
    let wide = operation.candidates.iter().find(|row| row.config.as_str() == r#"{"xla_cpu_prefer_vector_width":512}"#);
    let differences =
        wide.unwrap().differences.iter().map(|one| (one.output, one.elements, one.differing, one.max_absolute));
    assert_eq!(differences.collect::<Vec<_>>(), [(0, 4, 4, 1.0)]);
    assert!(operation.flags.iter().any(|flag| flag.contains("3 refused, 1 failed")), "{:?}", operation.flags);
}

#[test]
fn fast_arithmetic_is_tried_with_nan_and_says_what_it_makes_of_it() {
    let ledger = Ledger::in_memory(vec![]);
    let mut module = module();
    module.program.results = vec!["loss".to_owned()];
    let choices = OptionSpace::built_in("cpu").unwrap().choices(OptionClass::FastMath);
    module.choices = choices.into_iter().filter(|choice| choice.name.contains("fast_math")).collect();
    // one bit in the last place: 2 to the power of -23
    let fast: fn(&Overrides, u32) -> Outcome = |options, _| match options.contains_key("xla_cpu_enable_fast_math") {
        true => Outcome { output: 1.0 + f32::EPSILON, ..takes(0.5) },
        false => takes(1.0),
    };
    let operation = tune(&mut Compiler::new(fast), &ledger, &module, &RaceOptions::default()).operation;
    // large outputs stay in the worker, and comparing them there gives the same result
    let mut keeping = Compiler::new(fast);
    keeping.info.can.compare_outputs = true;
    let kept = tune(&mut keeping, &Ledger::in_memory(vec![]), &module, &RaceOptions::default()).operation;
    let found = |operation: &OperationResult| {
        let rows = operation.candidates.iter().map(|row| (row.config.clone(), row.special_values.clone()));
        rows.collect::<Vec<_>>()
    };
    assert_eq!(found(&kept), found(&operation));
    assert_eq!(operation.status, Status::Tuned);
    let best = operation.best.as_ref().unwrap();
    let row = operation.candidates.iter().find(|row| row.config == best.config).unwrap();
    let found: Vec<_> = row.special_values.iter().map(|one| (one.values, one.outputs.len(), &one.failure)).collect();
    assert_eq!(
        found,
        [(SpecialKind::Nan, 1, &None), (SpecialKind::Infinities, 0, &None), (SpecialKind::Denormals, 0, &None)]
    );
    let nan = &row.special_values[0].outputs[0];
    assert_eq!((nan.to_string().as_str(), nan.differing, nan.elements), ("output 0 `loss`", 1, 4));
    let said = "1 of 4 elements of output 0 `loss`";
    assert!(operation.flags.iter().any(|flag| flag.contains("NaN") && flag.contains(said)), "{:?}", operation.flags);
    let said = "it changes arithmetic, and with it output 0 `loss` by up to 1.2e-7, 1.2e-7 of its root mean square";
    assert!(operation.flags.iter().any(|flag| flag == said), "{:?}", operation.flags);
    let base = operation.candidates.iter().find(|row| row.config.as_map().is_empty()).unwrap();
    assert!(base.special_values.is_empty());
}

#[test]
fn a_program_that_differs_from_itself_decides_nothing() {
    let operation = tuned(|_, copy| Outcome { output: copy as f32, ..takes(1.0) });
    assert_eq!((operation.status, operation.best), (Status::Failed, None));
    assert!(operation.reason.contains("nondeterministic"), "{}", operation.reason);
}

/// Elements of one in `f32` may be off by 2e-3 of themselves and 2e-3 of the root mean square, so a set that is off by
/// 0.0045 is rejected. If the default differs from its own copy by 0.001, the set may be off by 0.005.
#[test]
fn what_the_default_differs_from_itself_is_not_held_against_a_set() {
    let noisy: fn(&Overrides, u32) -> Outcome = |options, copy| {
        let (output, factor) = if has(options, WIDE) { (1.0045, 0.5) } else { (1.0 + 0.001 * copy as f32, 1.0) };
        Outcome { output, ..takes(factor) }
    };
    let exact: fn(&Overrides, u32) -> Outcome = |options, _| {
        let (output, factor) = if has(options, WIDE) { (1.0045, 0.5) } else { (1.0, 1.0) };
        Outcome { output, ..takes(factor) }
    };
    for (of, status) in [(noisy, Status::Tuned), (exact, Status::BaselineKept)] {
        let alone = tuned(of);
        assert_eq!(alone.status, status, "{}", alone.reason);
        let mut keeping = Compiler::new(of);
        keeping.info.can.compare_outputs = true;
        let kept = tune(&mut keeping, &Ledger::in_memory(vec![]), &module(), &RaceOptions::default()).operation;
        assert_eq!((kept.status, best(&kept)), (status, best(&alone)));
    }
}

#[test]
fn a_module_without_a_digest_is_tuned_and_is_no_entry() {
    let ledger = Ledger::in_memory(vec![]);
    let mut module = module();
    module.key = Err("no text".to_owned());
    let found = tune(&mut Compiler::new(two_that_add_up), &ledger, &module, &RaceOptions::default());
    assert_eq!((found.operation.status, found.entry), (Status::Tuned, None));
    assert!(found.operation.flags.iter().any(|flag| flag == "not in the cache: no text"));
}
