//! Compiling in waves: what is skipped, what is never lost, and how a later run continues.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use autotune_lowered::config::Config;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::{Candidate, Registry};
use autotune_lowered::search::{Space, Surrogate, WaveRules};
use autotune_lowered::timer::events::Events;
use autotune_lowered::tune::{
    CandidateStatus, OperationResult, PlannedInvocation, Session, Status, TuneOptions, TuningPlan,
};
use serde_json::json;

use crate::support::formula::{FormulaTimer, tune_one, tune_with};
use crate::support::scripted::invocation;

/// The first wave has six configs.
const WAVE: usize = 4;

fn config(a: u64, b: u64) -> Config {
    serde_json::from_value(json!({"a": a, "b": b})).unwrap()
}

/// Eight values for each of two parameters.
fn grid() -> Vec<Config> {
    let values = || (0..8).map(|power| 4_u64 << power);
    values().flat_map(|a| values().map(move |b| config(a, b))).collect()
}

/// Powers of two above four.
fn powers(config: &Config) -> (f64, f64) {
    let power = |name: &str| (config.as_map()[name].as_f64().unwrap() / 4.0).log2();
    (power("a"), power("b"))
}

/// A bowl with its minimum at 2⁷ and 2⁵, like a real space: the surrogate can skip most of it.
fn bowl(config: &Config) -> f64 {
    let (a, b) = powers(config);
    1e6 * (1.0 + 0.1 * ((a - 5.0).powi(2) + (b - 3.0).powi(2)))
}

/// Follows a surrogate's questions until it skips the rest: the compiled points, in order, and the number of waves.
fn follow(surrogate: &mut Surrogate, time: impl Fn(usize) -> Option<f64>) -> (Vec<usize>, usize) {
    let (mut compiled, mut waves) = (Vec::new(), 0);
    loop {
        let next = surrogate.predict(&[], &WaveRules::new(WAVE)).next;
        if next.is_empty() {
            return (compiled, waves);
        }
        waves += 1;
        for point in next {
            assert!(!compiled.contains(&point), "{point} is compiled once");
            compiled.push(point);
            surrogate.tell(point, time(point).map(|time| (time.ln(), 0.01)));
        }
    }
}

fn on(configs: &[Config], baseline: usize, seed: u64) -> Surrogate {
    let mut surrogate = Surrogate::new(seed);
    surrogate.begin(&Space::new(configs.iter().cloned()).unwrap(), baseline);
    surrogate
}

/// Numbers between one and two, unrelated to their neighbours.
fn scattered(seed: u64, point: usize) -> f64 {
    let mixed =
        (point as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    1.0 + (mixed >> 40) as f64 / (1 << 24) as f64
}

#[test]
fn a_smooth_space_is_left_for_the_most_part_and_its_best_is_found() {
    let configs = grid();
    for seed in 0..4 {
        let (compiled, _) = follow(&mut on(&configs, 0, seed), |point| Some(bowl(&configs[point])));
        let best = (0..configs.len()).min_by(|&a, &b| bowl(&configs[a]).total_cmp(&bowl(&configs[b]))).unwrap();
        let found = compiled.iter().map(|&point| bowl(&configs[point])).fold(f64::INFINITY, f64::min);
        assert!(found <= bowl(&configs[best]) / 0.98, "seed {seed}");
        assert!(compiled.len() <= 40, "seed {seed}: {} of 64", compiled.len());
        assert_eq!(compiled[0], 0, "the baseline is looked at first");
    }
}

#[test]
fn where_neighbours_tell_nothing_nearly_all_is_compiled() {
    let configs = grid();
    let mut lost = 0;
    for seed in 0..8 {
        let (compiled, _) = follow(&mut on(&configs, 1, seed), |point| Some(scattered(seed, point)));
        let best =
            |points: &mut dyn Iterator<Item = usize>| points.map(|point| scattered(seed, point)).fold(9.0, f64::min);
        let (found, all) = (best(&mut compiled.iter().copied()), best(&mut (0..64)));
        lost += usize::from(all < 0.98 * found);
    }
    assert!(lost <= 2, "{lost} of 8 at a chance of 5 %");
}

const SEEDS: u64 = 3;

/// For all orders of looks, how near to the best the best so far is after one look, two, and so on, on average: 1 is
/// the best at once.
fn score(orders: &[Vec<usize>], time: impl Fn(usize) -> f64) -> f64 {
    let best = (0..64).map(&time).fold(f64::INFINITY, f64::min);
    let of_order = |order: &Vec<usize>| {
        let so_far = |count: usize| order.iter().take(count).map(|&point| time(point)).fold(f64::INFINITY, f64::min);
        (1..=40).map(|count| best / so_far(count)).sum::<f64>() / 40.0
    };
    orders.iter().map(of_order).sum::<f64>() / orders.len() as f64
}

/// The orders in which a space is looked at, given this prior knowledge of each point.
fn orders(time: impl Fn(usize) -> f64, figures: impl Fn(u64, usize) -> Vec<Option<f64>>) -> Vec<Vec<usize>> {
    let configs = grid();
    let order = |seed: u64| {
        let mut surrogate = on(&configs, 0, seed);
        surrogate.add_figures(&(0..configs.len()).map(|point| figures(seed, point)).collect::<Vec<_>>());
        follow(&mut surrogate, |point| Some(time(point))).0
    };
    (0..SEEDS).map(order).collect()
}

fn by_chance(seed: u64, point: usize) -> Vec<Option<f64>> {
    (0..6).map(|figure| Some(scattered(seed * 8 + figure + 77, point))).collect()
}

#[test]
fn what_a_compiler_said_helps_where_it_goes_with_the_times_and_costs_little_where_it_does_not() {
    let configs = grid();
    let (smooth, rough) = (|point: usize| bowl(&configs[point]), |point: usize| scattered(3, point));
    let nothing = |_: u64, _: usize| Vec::new();
    // one figure of six is related to the times, which are unrelated to the parameters
    let goes_with = |seed: u64, point: usize| {
        let mut figures = by_chance(seed, point);
        figures[2] = Some(rough(point).ln());
        figures
    };
    let (without, with) = (orders(rough, nothing), orders(rough, goes_with));
    let compiled = |orders: &[Vec<usize>]| orders.iter().map(Vec::len).sum::<usize>();
    assert!(compiled(&with) * 4 < compiled(&without) * 3, "{} of {}", compiled(&with), compiled(&without));
    let best = (0..64).map(rough).fold(f64::INFINITY, f64::min);
    let finds = |order: &&Vec<usize>| order.iter().any(|&point| rough(point) * 0.98 < best);
    assert_eq!(with.iter().filter(finds).count(), with.len());
    // random figures
    let (without, misled) = (orders(smooth, nothing), orders(smooth, by_chance));
    let (without, misled) = (score(&without, smooth), score(&misled, smooth));
    assert!(misled >= 0.95 * without, "{misled} of {without}");
    // figures that are unknown for all points have no effect
    let (mut plain, mut unknown) = (on(&configs, 0, 1), on(&configs, 0, 1));
    unknown.add_figures(&vec![vec![None, None]; configs.len()]);
    for surrogate in [&mut plain, &mut unknown] {
        (0..9).for_each(|point| surrogate.tell(point * 7, Some((smooth(point * 7).ln(), 0.01))));
    }
    let next = |surrogate: &Surrogate| surrogate.predict(&[], &WaveRules::new(WAVE)).next;
    assert_eq!(next(&plain), next(&unknown));
}

#[test]
fn nothing_is_left_while_nothing_helps() {
    let configs = grid();
    // one good config among sixty-four equal ones, and a baseline that is best
    for needle in [5, 30, 63] {
        let (compiled, _) = follow(&mut on(&configs, 0, 1), |point| Some(if point == needle { 0.5 } else { 1.0 }));
        assert!(compiled.contains(&needle), "{needle}");
    }
    let (compiled, _) = follow(&mut on(&configs, 9, 1), |point| Some(if point == 9 { 1.0 } else { 1.5 }));
    assert_eq!(compiled.len(), 64);
}

#[test]
fn what_could_not_be_told_apart_is_no_reason_to_compile() {
    let configs = grid();
    // the noise that gives a floor of 14% over 20 rounds
    let (noise, floor) = (0.18, 0.14);
    let bell = |seed: u64, point: usize| (0..12).map(|part| scattered(seed + 31 * part, point)).sum::<f64>() - 18.0;
    let told = |seed: u64, point: usize| bowl(&configs[point]).ln() + noise * bell(seed, point);
    let compiled = |seed: u64, rules: &WaveRules| {
        let mut surrogate = on(&configs, 0, seed);
        let mut compiled = Vec::new();
        loop {
            let next = surrogate.predict(&[], rules).next;
            if next.is_empty() {
                return compiled;
            }
            for &point in &next {
                surrogate.tell(point, Some((told(seed, point), noise)));
            }
            compiled.extend(next);
        }
    };
    let (mut without, mut with) = (0, 0);
    for seed in 0..6 {
        without += compiled(seed, &WaveRules::new(WAVE)).len();
        let found = compiled(seed, &WaveRules::new(WAVE).noise_floor(floor));
        with += found.len();
        let best = |points: &mut dyn Iterator<Item = usize>| {
            points.map(|point| bowl(&configs[point])).fold(f64::INFINITY, f64::min)
        };
        let (found, all) = (best(&mut found.iter().copied()), best(&mut (0..64)));
        assert!(found <= all * (1.0 + floor), "seed {seed}: {found} of {all}");
    }
    assert!(10 * with < 9 * without, "{with} with a floor, {without} without");
}

#[test]
fn configs_that_fail_are_passed_and_a_first_wave_that_fails_is_not_the_end() {
    let configs = grid();
    let first = on(&configs, 0, 3).predict(&[], &WaveRules::new(WAVE)).next;
    let fails = |point: usize| point != 0 && first.contains(&point);
    let (compiled, _) = follow(&mut on(&configs, 0, 3), |point| (!fails(point)).then(|| bowl(&configs[point])));
    let found = compiled.iter().filter(|&&point| !fails(point)).map(|&point| bowl(&configs[point]));
    let best = (0..64).filter(|&point| !fails(point)).map(|point| bowl(&configs[point]));
    let (found, best) = (found.fold(f64::INFINITY, f64::min), best.fold(f64::INFINITY, f64::min));
    assert!(found <= best / 0.98, "{found} of {best}, {} compiled", compiled.len());
}

#[test]
fn a_second_call_compiles_less_and_one_that_is_the_opposite_loses_nothing() {
    let configs = grid();
    let space = Space::new(configs.iter().cloned()).unwrap();
    let (mut alone, mut after) = (0, 0);
    for seed in 0..3 {
        let mut surrogate = on(&configs, 0, seed);
        alone += follow(&mut surrogate, |point| Some(bowl(&configs[point]))).0.len();
        surrogate.begin(&space, 0);
        // four times as long, and a little different
        let like = |point: usize| 4.0 * bowl(&configs[point]) * (1.0 + 0.02 * scattered(seed, point));
        after += follow(&mut surrogate, |point| Some(like(point))).0.len();
        surrogate.begin(&space, 9);
        let unlike = |point: usize| 1e14 / bowl(&configs[point]).powi(2);
        let (compiled, _) = follow(&mut surrogate, |point| Some(unlike(point)));
        let found = compiled.iter().map(|&point| unlike(point)).fold(f64::INFINITY, f64::min);
        let best = (0..64).map(unlike).fold(f64::INFINITY, f64::min);
        assert!(found <= best / 0.98, "seed {seed}");
    }
    assert!(2 * after < alone + after, "{after} after a call like it, {alone} alone");
}

fn call(key: &str) -> PlannedInvocation {
    let configs = grid();
    let candidates = configs.iter().map(|config| Candidate::new(config.clone())).collect();
    PlannedInvocation::new(Arc::new(invocation(key, configs[0].clone(), candidates)))
}

fn ns(config: &Config) -> u64 {
    bowl(config) as u64
}

/// A timer that reports which configs it compiled.
fn timer() -> (FormulaTimer, Arc<Mutex<Vec<Config>>>) {
    let compiled = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&compiled);
    let timer = FormulaTimer::new(ns).behaving(move |config, method| {
        if method == "prepare" {
            told.lock().unwrap().push(config.clone());
        }
        Ok(())
    });
    (timer, compiled)
}

fn count(operation: &OperationResult, status: CandidateStatus) -> usize {
    operation.candidates.iter().filter(|candidate| candidate.status() == status).count()
}

#[test]
fn what_is_left_is_said_and_a_thorough_run_compiles_just_that() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), Vec::new()).unwrap();
    let options = TuneOptions::default().wave(WAVE);
    let (mut first, compiled) = timer();
    let operation = tune_one(&call("aa00"), &mut first, &ledger, &options);
    assert_eq!(operation.status, Status::Tuned, "{}", operation.reason);
    assert_eq!(operation.best.as_ref().unwrap().config, config(128, 32));
    let left = count(&operation, CandidateStatus::NotCompiled);
    assert!(left >= 24, "{left} are left");
    // and the baseline, the winner and its three rivals once more in each process that confirms
    assert_eq!(compiled.lock().unwrap().len() + left, 64 + 3 * 5);
    assert!(operation.untried_chance.unwrap() <= 0.05);
    let best = operation.candidates.iter().filter_map(|one| Some(one.times()?.ratio)).fold(f64::INFINITY, f64::min);
    let mut inside = 0;
    for candidate in &operation.candidates {
        let Some(expected) = candidate.expected() else { continue };
        assert!(expected.low <= expected.ratio && expected.ratio <= expected.high);
        // beyond four times the best, times count as equal
        let truth = (bowl(&candidate.config) / bowl(&config(4, 4))).min(best * 4.0);
        inside += usize::from(expected.low <= truth * 1.02 && truth <= expected.high * 1.02);
    }
    assert!(inside * 10 >= left * 8, "{inside} of {left} are where they were expected, of nine in ten");

    // the same run again measures nothing
    let (mut again, none) = timer();
    let same = tune_one(&call("aa00"), &mut again, &ledger, &options);
    assert_eq!((same.status, same.rounds_measured), (Status::Cached, 0));
    assert!(none.lock().unwrap().is_empty());

    let (mut whole, more) = timer();
    let thorough = tune_one(&call("aa00"), &mut whole, &ledger, &options.clone().thorough(true));
    assert_eq!(count(&thorough, CandidateStatus::NotCompiled), 0);
    assert_eq!(thorough.untried_chance, None);
    assert!(thorough.rounds_kept > 0, "samples of the run before count");
    let (before, after) = (compiled.lock().unwrap(), more.lock().unwrap());
    let unseen = after.iter().filter(|config| !before.contains(config)).count();
    assert_eq!(unseen, left, "whatever was left is compiled");
}

#[test]
fn a_run_that_is_ended_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), Vec::new()).unwrap();
    let options = TuneOptions::default().wave(WAVE);
    let (mut whole, all) = timer();
    let expected = tune_one(&call("aa00"), &mut whole, &Ledger::in_memory(Vec::new()), &options);
    // the worker fails for good in the second wave
    let mut prepared = 0;
    let mut broken = FormulaTimer::new(ns).behaving(move |_, method| {
        prepared += usize::from(method == "prepare");
        if prepared > 8 { Err(Failure::new(FailureKind::Device, "no device")) } else { Ok(()) }
    });
    let failed = tune_one(&call("aa00"), &mut broken, &ledger, &options);
    assert_eq!(failed.status, Status::Failed);
    let (mut second, rest) = timer();
    let done = tune_one(&call("aa00"), &mut second, &ledger, &options);
    assert_eq!(done.best.unwrap().config, expected.best.unwrap().config);
    let rest: BTreeSet<Config> = rest.lock().unwrap().iter().cloned().collect();
    let all: BTreeSet<Config> = all.lock().unwrap().iter().cloned().collect();
    assert_eq!(rest, all, "the first look counts: the waves after it are the same");
}

#[test]
fn a_budget_that_is_used_up_decides_nothing_and_more_time_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), Vec::new()).unwrap();
    let options = TuneOptions::default().wave(WAVE);
    let (mut short, _) = timer();
    let none = tune_one(&call("aa00"), &mut short, &ledger, &options.clone().budget(Some(Duration::ZERO)));
    assert_eq!(none.status, Status::Failed, "what was not compiled may be faster");
    assert!(none.reason.contains("63 of 64 configs were not compiled"), "{}", none.reason);
    assert_eq!(none.best, None);
    let (mut long, _) = timer();
    let done = tune_one(&call("aa00"), &mut long, &ledger, &options);
    assert_eq!((done.status, done.best.unwrap().config), (Status::Tuned, config(128, 32)));
}

#[test]
fn a_candidate_that_hangs_is_out_and_the_waves_go_on() {
    let mut timer = FormulaTimer::new(ns).behaving(|config, method| match method {
        "measure" if *config == config_of_the_corner() => Err(Failure::new(FailureKind::Timeout, "no end")),
        _ => Ok(()),
    });
    let ledger = Ledger::in_memory(Vec::new());
    let operation = tune_one(&call("aa00"), &mut timer, &ledger, &TuneOptions::default().wave(WAVE));
    assert_eq!(operation.best.as_ref().unwrap().config, config(128, 32));
    assert_eq!(count(&operation, CandidateStatus::Failed), 1);
}

fn config_of_the_corner() -> Config {
    config(512, 512)
}

#[test]
fn the_calls_of_a_run_learn_from_each_other() {
    let compiled = |keys: &[&str]| {
        let (mut timer, compiled) = timer();
        let plan: Vec<PlannedInvocation> = keys.iter().map(|key| call(key)).collect();
        let options = TuneOptions::default().wave(WAVE);
        let result = tune_with(&plan, &mut timer, &Ledger::in_memory(Vec::new()), &options, |_, _| {});
        assert!(result.operations.iter().all(|one| one.best.as_ref().unwrap().config == config(128, 32)));
        compiled.lock().unwrap().drain(..).count()
    };
    let (one, two) = (compiled(&["aa00"]), compiled(&["aa00", "bb00"]));
    assert!(two < 2 * one, "{two} programs for two calls, {one} for one");
}

/// A call of another operation.
fn call_of(operation: &str, key: &str) -> PlannedInvocation {
    let mut planned = call(key);
    Arc::make_mut(&mut planned.invocation).call.op_id = operation.to_owned();
    planned
}

#[test]
fn calls_of_several_operations_compile_together_and_measure_one_after_the_other() {
    let plan: TuningPlan =
        [call_of("a@v1", "aa00"), call_of("b@v1", "bb00"), call_of("c@v1", "cc00"), call_of("a@v1", "dd00")]
            .into_iter()
            .collect();
    assert_eq!(plan.side_by_side(), 3);
    // the order of events: each timer has its number
    let told: Arc<Mutex<Vec<(usize, bool)>>> = Arc::default();
    let mut timers: Vec<FormulaTimer> = (0..3)
        .map(|number| {
            let told = Arc::clone(&told);
            FormulaTimer::new(ns).behaving(move |_, method| {
                told.lock().unwrap().push((number, method == "prepare"));
                Ok(())
            })
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::create_or_open(folder.path()).unwrap();
    let ledger = Ledger::in_memory(Vec::new());
    let (first, others) = timers.split_first_mut().unwrap();
    let mut session = Session::new(&registry, &ledger, first).options(TuneOptions::default().wave(WAVE));
    for timer in others {
        session = session.beside(timer, Events::default());
    }
    let result = session.run(&plan).unwrap();
    let keys: Vec<&str> = result.operations.iter().map(|one| &*one.call.call_key).collect();
    assert_eq!(keys, ["aa00", "bb00", "cc00", "dd00"], "the result has the plan's order");
    for operation in &result.operations {
        assert_eq!(operation.best.as_ref().unwrap().config, config(128, 32), "{:?}", operation.call);
    }
    let compiled = |operation: &OperationResult| 64 - count(operation, CandidateStatus::NotCompiled);
    let [first, .., last] = &result.operations[..] else { panic!("four operations") };
    assert!(compiled(last) < compiled(first), "the second call of an operation starts from the first one's surrogate");

    let told = told.lock().unwrap();
    // without the processes that confirm: each prepares the baseline, the winner and three rivals of four calls
    let confirming = told.iter().rev().scan(0, |prepares, (_, is_prepare)| {
        *prepares += usize::from(*is_prepare);
        (*prepares <= 3 * 4 * 5).then_some(())
    });
    let told = &told[..told.len() - confirming.count()];
    let (mut together, mut phases) = (0, 0);
    for phase in told.chunk_by(|a, b| a.1 == b.1) {
        let who: BTreeSet<usize> = phase.iter().map(|(number, _)| *number).collect();
        if phase[0].1 {
            together = together.max(who.len());
            phases += 1;
        } else {
            let turns = phase.chunk_by(|a, b| a.0 == b.0).count();
            assert_eq!(turns, who.len(), "each is measured in one go");
        }
    }
    assert_eq!(together, 3, "all three compile at the same time");
    let alone: usize = result.operations.iter().map(|one| compiled(one).div_ceil(WAVE)).sum();
    assert!(phases < alone, "{phases} phases of compiling, {alone} waves");
}

/// The first wave has no outputs to compare with until the baseline has run; later ones compare each while the next
/// compiles.
#[test]
fn outputs_are_compared_while_the_rest_of_a_wave_compiles() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tune = |compiles_beside_outputs: bool| {
        told.lock().unwrap().clear();
        let log = Arc::clone(&told);
        let mut timer = FormulaTimer::new(ns).behaving(move |_, method| {
            log.lock().unwrap().push(method.to_owned());
            Ok(())
        });
        timer.info.can.compile_beside_outputs = compiles_beside_outputs;
        // the fastest of all, which no first wave contains
        timer.is_wrong = |one| *one == config(128, 32);
        tune_one(
            &call_of("a@v1", "aa00"),
            &mut timer,
            &Ledger::in_memory(Vec::new()),
            &TuneOptions::default().wave(WAVE),
        )
    };
    let (apart, beside) = (tune(false), tune(true));
    let in_turn = |told: &[String]| told.windows(4).any(|four| four == ["prepare", "outputs", "prepare", "outputs"]);
    assert!(in_turn(&told.lock().unwrap()));
    assert_eq!(beside.best.as_ref().unwrap().config, apart.best.as_ref().unwrap().config);
    let wrong = beside.candidates.iter().find(|row| row.config == config(128, 32)).unwrap();
    assert_eq!(wrong.failure().unwrap().kind, FailureKind::WrongOutput);
    drop(tune(false));
    assert!(!in_turn(&told.lock().unwrap()), "a timer that cannot have both compares when all are compiled");
}
