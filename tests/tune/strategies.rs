//! Search strategies, through their public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::HashSet;

use crate::support::prerequisite::shared_data;
use autotune_lowered::candidates::{CandidateSpace, Descent};
use autotune_lowered::config::Config;
use autotune_lowered::search::{
    Budget, MAX_PRIORS, MAX_STEPS, NoSpace, SAMPLE, Space, StrategyKind, StrategyPlan, TrialOutcome, start,
};
use proptest::prelude::*;
use serde_json::json;

#[allow(dead_code)]
#[path = "../../benches/search/recorded/mod.rs"]
mod recorded;
#[allow(dead_code)]
#[path = "../../benches/search/score.rs"]
mod score;
#[allow(dead_code)]
#[path = "../../benches/search/simulate.rs"]
mod simulate;

use recorded::{Recorded, analytic, read};
use score::{CUT_OFF, NoScale, Scale};
use simulate::simulate;

fn config(text: &str) -> Config {
    serde_json::from_str(text).unwrap()
}

/// A bowl over 24 by 24 configs: the best one is at (17, 5), every other is slower.
fn bowl() -> Recorded {
    let grid: Vec<(i32, i32)> = (0..24).flat_map(|a| (0..24).map(move |b| (a, b))).collect();
    let space = Space::new(grid.iter().map(|(a, b)| config(&format!("{{\"a\":{a},\"b\":{b}}}")))).unwrap();
    let time = |&(a, b): &(i32, i32)| TrialOutcome::of(1.0 + 0.01 * f64::from((a - 17).pow(2) + 2 * (b - 5).pow(2)));
    Recorded { space, outcomes: grid.iter().map(time).collect(), format: "simulated" }
}

fn plan(space: &Space, seed: u64) -> StrategyPlan<'_> {
    StrategyPlan::new(space, seed).budget(Some(60))
}

#[test]
fn the_same_seed_asks_the_same_and_another_one_does_not() {
    let bowl = bowl();
    for kind in StrategyKind::ALL {
        let asked = |seed| simulate(&mut *start(kind, &plan(&bowl.space, seed)), &bowl, 60).asked;
        assert_eq!(asked(7), asked(7), "{kind:?}");
        if kind != StrategyKind::Exhaustive {
            assert_ne!(asked(7), asked(8), "{kind:?}");
        }
    }
}

#[test]
fn a_told_history_resumes_a_search_wherever_it_was_interrupted() {
    let bowl = bowl();
    for kind in StrategyKind::ALL {
        let whole = simulate(&mut *start(kind, &plan(&bowl.space, 3)), &bowl, 60).asked;
        for interrupted in [1, 4, 19, 20, 33, 59] {
            let mut resumed = start(kind, &plan(&bowl.space, 3));
            for &point in &whole[..interrupted] {
                resumed.tell(point, bowl.outcome(point));
            }
            assert_eq!(resumed.ask(), Some(whole[interrupted]), "{kind:?} after {interrupted}");
            // `ask` changes nothing
            assert_eq!(resumed.ask(), Some(whole[interrupted]));
            resumed.tell(whole[interrupted], bowl.outcome(whole[interrupted]));
            assert_eq!(resumed.ask(), whole.get(interrupted + 1).copied().or(resumed.ask()), "{kind:?}");
        }
    }
}

#[test]
fn every_config_is_asked_once_and_then_nothing() {
    let tiles = analytic()[0].recorded().unwrap();
    for kind in [StrategyKind::Auto, StrategyKind::Model, StrategyKind::Random, StrategyKind::Exhaustive] {
        let asked = simulate(&mut *start(kind, &plan(&tiles.space, 1)), &tiles, 10_000).asked;
        assert_eq!(asked.len(), tiles.space.count(), "{kind:?}");
        assert_eq!(asked.iter().collect::<HashSet<_>>().len(), asked.len(), "{kind:?}");
    }
}

/// The model reaches the bottom of a bowl after a few steps; random search needs half of the 576 configs.
#[test]
fn the_model_finds_the_bottom_of_a_bowl() {
    let bowl = bowl();
    let bottom = bowl.space.find(&config(r#"{"a":17,"b":5}"#)).unwrap();
    for seed in 0..10 {
        let asked = simulate(&mut *start(StrategyKind::Auto, &plan(&bowl.space, seed)), &bowl, 40).asked;
        assert!(asked.contains(&bottom), "seed {seed}: {asked:?}");
    }
}

#[test]
fn neighbours_are_asked_first_even_if_they_are_of_another_space() {
    let bowl = bowl();
    // the first is not in this space, and counts as the same config as the second
    let priors = [r#"{"a":16.6,"b":5.2,"other":1}"#, r#"{"a":17,"b":5}"#, r#"{"a":3,"b":3}"#].map(config);
    for kind in StrategyKind::ALL {
        let plan = plan(&bowl.space, 0).priors(&priors);
        let asked = simulate(&mut *start(kind, &plan), &bowl, 3).asked;
        let configs: Vec<Config> = asked.iter().map(|&point| bowl.space.config(point)).collect();
        // the model asks for the first and learns from the others
        let first = if matches!(kind, StrategyKind::Auto | StrategyKind::Model) { 1 } else { 2 };
        let expected = [config(r#"{"a":17,"b":5}"#), config(r#"{"a":3,"b":3}"#)];
        assert_eq!(configs[..first], expected[..first], "{kind:?}");
    }
    // misleading ones cost little
    let bad: Vec<Config> = (0..20).map(|n| config(&format!("{{\"a\":0,\"b\":{n}}}"))).collect();
    let plan = plan(&bowl.space, 0).priors(&bad);
    let asked = simulate(&mut *start(StrategyKind::Auto, &plan), &bowl, 60).asked;
    assert!(asked.contains(&bowl.space.find(&config(r#"{"a":17,"b":5}"#)).unwrap()));
}

#[test]
fn what_is_refused_is_never_asked_for_and_all_else_is() {
    let tiles = analytic()[0].recorded().unwrap();
    let count = tiles.space.count();
    let refused: Vec<usize> = (0..count).filter(|point| point % 8 != 4).chain([count, usize::MAX]).collect();
    for kind in StrategyKind::ALL {
        let priors = [tiles.space.config(0), tiles.space.config(12), tiles.space.config(20)];
        for priors in [&priors[..], &[]] {
            let plan = plan(&tiles.space, 1).refused(&refused).priors(priors);
            let asked = simulate(&mut *start(kind, &plan), &tiles, 10_000).asked;
            let mut sorted = asked.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq((0..count).filter(|point| point % 8 == 4)), "{kind:?}");
            assert!(priors.is_empty() || asked[0] == 12, "{kind:?}: the prior that is left");
        }
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(start(kind, &plan(&tiles.space, 1).refused(&all)).ask(), None, "{kind:?}");
    }
}

/// Times unrelated to the one parameter, so that only the figures help.
#[test]
fn figures_that_go_with_the_times_are_followed() {
    const COUNT: usize = 100;
    let space = Space::new((0..COUNT).map(|n| config(&format!("{{\"a\":{n}}}")))).unwrap();
    let time = |point: usize| 1.0 + ((point * 37 + 51) % COUNT) as f64 / 25.0;
    let outcomes = (0..COUNT).map(|point| TrialOutcome::of(time(point))).collect();
    let recorded = Recorded { outcomes, space, format: "simulated" };
    let needed = |figures: &[Vec<Option<f64>>]| {
        let of_seed = |seed| {
            let plan = plan(&recorded.space, seed).figures(figures);
            let asked = simulate(&mut *start(StrategyKind::Model, &plan), &recorded, COUNT).asked;
            1 + asked.iter().position(|&point| time(point) == 1.0).unwrap()
        };
        of_seed(0) + of_seed(1)
    };
    // one of two is related to the times; nothing is known of the last configs
    let chance = |point: usize| Some((point * 61 % 97) as f64);
    let helpful: Vec<_> = (0..COUNT - 5).map(|point| vec![chance(point), Some(time(point))]).collect();
    let (none, helpful) = (needed(&[]), needed(&helpful));
    assert!(helpful < 40 && helpful * 2 < none, "{none} {helpful}");
}

fn candidates(parameters: serde_json::Value, constraints: &[&str], baseline: serde_json::Value) -> CandidateSpace {
    let space = json!({"schema": 1, "op": "large", "parameters": parameters, "constraints": constraints,
                       "baseline": baseline});
    CandidateSpace::parse("large.json", &space.to_string()).unwrap()
}

/// 100^6 points, of which the constraints leave 100: the product is not built, and the search finds the best one.
#[test]
fn a_space_of_a_million_million_points_is_enumerated() {
    let values = json!({"from": 1, "to": 100, "step": 1});
    let names = ["a", "b", "c", "d", "e", "f"];
    let parameters: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), values.clone())).collect();
    let baseline: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
    let constraints = ["b == a", "c == b", "d == c", "e == d", "f == e"];
    let large = candidates(parameters.into(), &constraints, baseline.into());
    assert_eq!(large.count_bound(), 1_000_000_000_000);
    let space = Space::of_candidates(&large, 0).unwrap();
    assert_eq!(space.count(), 100);
    let outcomes = (0..100).map(|point| {
        let a = space.config(point).get("a").unwrap().as_f64().unwrap();
        TrialOutcome::of(10.0 + (a - 73.0).abs())
    });
    let recorded = Recorded { outcomes: outcomes.collect(), space, format: "simulated" };
    let best = simulate(&mut *start(StrategyKind::Auto, &plan(&recorded.space, 0)), &recorded, 40).best;
    assert_eq!(best.last(), Some(&Some(10.0)));
}

#[test]
fn spaces_that_cannot_be_searched_are_refused_with_a_reason() {
    // the baseline must be a config, so reading a file with contradictions fails
    let contradiction = json!({"schema": 1, "op": "none", "parameters": {"a": [1, 2]}, "constraints": ["a > 1", "a < 2"],
                               "baseline": {"a": 1}});
    assert!(CandidateSpace::parse("none.json", &contradiction.to_string()).is_err());
    // and if constraints contradict the call's given values, there is no config
    let text = json!({"schema": 1, "op": "given", "given": {"rows": 2}, "parameters": {"a": [1, 2]},
                      "constraints": ["a <= rows"], "baseline": {"a": 1}});
    let given = CandidateSpace::parse("given.json", &text.to_string()).unwrap().given("rows", json!(0)).unwrap();
    let error = Space::of_candidates(&given, 0).unwrap_err();
    assert_eq!(error, NoSpace::Empty);
    assert!(error.to_string().contains("constraints exclude every one"));
}

fn grid(names: &[&str], count: usize, constraints: &[&str], total: i64) -> CandidateSpace {
    let values = json!({"from": 0, "to": count - 1, "step": 1});
    let parameters: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), values.clone())).collect();
    let baseline: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
    let space = json!({"schema": 1, "op": "large", "given": {"total": 0}, "parameters": parameters,
                       "constraints": constraints, "baseline": baseline});
    CandidateSpace::parse("large.json", &space.to_string()).unwrap().given("total", json!(total)).unwrap()
}

const TWELVE: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// More configs than a space may have: a sample that depends on the seed, with the baseline, which can be searched and
/// extended.
#[test]
fn a_space_of_too_many_configs_is_sampled() {
    let wide = grid(&["a", "b"], 1100, &[], 0);
    let space = Space::of_candidates(&wide, 1).unwrap();
    assert_eq!((space.is_sample(), space.count()), (true, SAMPLE + 1));
    assert_eq!(space.config(0), *wide.baseline());
    let (same, other) = (Space::of_candidates(&wide, 1).unwrap(), Space::of_candidates(&wide, 2).unwrap());
    assert_eq!(same.config(77), space.config(77));
    assert_ne!(other.config(77), space.config(77));
    // random over all values: the mean of 16385 uniform draws from 0 to 1099 is within 10 of 549.5
    let mean = |name: &str| {
        let sum: f64 = (0..space.count()).map(|at| space.config(at).get(name).unwrap().as_f64().unwrap()).sum();
        sum / space.count() as f64
    };
    assert!((mean("a") - 549.5).abs() < 10.0 && (mean("b") - 549.5).abs() < 10.0);

    let larger = space.with_neighbours(&wide, &[5]).unwrap();
    assert!(larger.is_sample());
    for point in [0, 5, SAMPLE] {
        assert_eq!(larger.config(point), space.config(point), "points keep their numbers");
    }
    // all other values of either parameter
    assert_eq!(larger.neighbours(5, false).len(), 2 * 1099);
}

/// 10^12 points, of which the last two parameters leave one in ten: that constraint must be met before the first ten
/// parameters.
#[test]
fn a_constraint_over_the_last_parameters_is_met_first() {
    let large = grid(&TWELVE, 10, &["k + l == total"], 9);
    assert_eq!(large.count_bound(), 1_000_000_000_000);
    let space = Space::of_candidates(&large, 0).unwrap();
    assert_eq!((space.is_sample(), space.count()), (true, SAMPLE));
    for point in (0..space.count()).step_by(997) {
        assert!(large.contains(&space.config(point)).unwrap());
    }
    // a config takes ten choices of other parameters, and up to a hundred of the two
    let mut descents = large.descents();
    assert!(matches!(descents.descend(&mut |_| 0), Ok(Descent::Found(_))));
    assert!(descents.steps() <= 10 + 110, "{}", descents.steps());
}

/// A contradiction between the last parameters of 10^12 points is proven by their values alone.
#[test]
fn contradictions_are_found_wherever_they_are() {
    let deep = grid(&TWELVE, 10, &["k + l == total", "a + b >= 0"], 100);
    let mut descents = deep.descents();
    assert_eq!(descents.descend(&mut |_| 0).unwrap(), Descent::Empty);
    assert!(descents.steps() <= 110 + 110 * 100, "{}", descents.steps());
    assert_eq!(Space::of_candidates(&deep, 0).unwrap_err(), NoSpace::Empty);
    // over all parameters at once nothing can be proven: it ends in a stated number of steps
    let wide = grid(&TWELVE, 10, &["a + b + c + d + e + f + g + h + i + j + k + l == total"], 109);
    match Space::of_candidates(&wide, 0).unwrap_err() {
        NoSpace::NoneFound(steps) => assert!(steps <= MAX_STEPS, "{steps}"),
        other => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// An interrupted strategy asks what it would have asked, with any priors, failures and budget.
    #[test]
    fn any_history_told_again_resumes_any_strategy(
        seed in 0..1000_u64, budget in proptest::option::of(0..80_usize), steps in 1..50_usize, failing in 2..9_usize,
        known in proptest::collection::vec((0..24, 0..24), 0..30),
    ) {
        let mut recorded = bowl();
        recorded.outcomes.iter_mut().step_by(failing).for_each(|outcome| *outcome = TrialOutcome::Failed);
        let prior = |&(a, b)| config(&format!("{{\"a\":{a},\"b\":{b}}}"));
        let priors: Vec<Config> = known.iter().map(prior).collect();
        for kind in StrategyKind::ALL {
            let plan = StrategyPlan::new(&recorded.space, seed).budget(budget).priors(&priors);
            let whole = simulate(&mut *start(kind, &plan), &recorded, steps + 5).asked;
            let mut resumed = start(kind, &plan);
            for &point in &whole[..steps] {
                resumed.tell(point, recorded.outcome(point));
            }
            let rest = simulate(&mut *resumed, &recorded, 5).asked;
            prop_assert_eq!(&rest, &whole[steps..], "{:?}", kind);
        }
    }
}

/// Until a time is spent: the driver checks the budget, for every strategy.
#[test]
fn a_budget_of_time_ends_every_search() {
    use std::time::Duration;
    let (bowl, cost) = (bowl(), Duration::from_millis(300));
    let budget = Budget::default().time(Some(Duration::from_secs(10)));
    for kind in StrategyKind::ALL {
        let expected = budget.left(1, cost).map(|left| left + 1);
        assert_eq!(expected, Some(33));
        let mut strategy = start(kind, &plan(&bowl.space, 0).budget(expected));
        let (mut count, mut spent) = (0, Duration::ZERO);
        while budget.left(count, spent) != Some(0) {
            let Some(point) = strategy.ask() else { break };
            strategy.tell(point, bowl.outcome(point));
            (count, spent) = (count + 1, spent + cost);
        }
        assert_eq!(count, 33, "{kind:?}");
    }
}

/// Best configs of neighbours, far more than are asked: the model learns from them where to look.
#[test]
fn priors_shape_the_model() {
    let bowl = bowl();
    let mean = |priors: &[Config], evaluations: usize| {
        let best = |seed| {
            let plan = plan(&bowl.space, seed).priors(priors);
            simulate(&mut *start(StrategyKind::Model, &plan), &bowl, evaluations).best.last().unwrap().unwrap()
        };
        (0..10).map(best).sum::<f64>() / 10.0
    };
    // the best first, in the order of neighbours
    let around = |a: i32, b: i32| -> Vec<Config> {
        let mut places: Vec<(i32, i32)> = (0..25).map(|n| (n % 5 - 2, n / 5 - 2)).collect();
        places.sort_by_key(|(x, y)| x * x + y * y);
        places.into_iter().map(|(x, y)| config(&format!("{{\"a\":{},\"b\":{}}}", a + x, b + y))).collect()
    };
    // neighbours whose best configs are around three steps away, and some whose are in the far corner
    let (right, wrong) = (around(14, 5), around(2, 21));
    assert!(mean(&right, 5) < mean(&[], 5), "{} {}", mean(&right, 5), mean(&[], 5));
    assert!(mean(&wrong, 25) < 1.05, "{}", mean(&wrong, 25));
    // more than are used: the first ones count
    let many: Vec<Config> = right.iter().cycle().take(2 * MAX_PRIORS).chain(&wrong).cloned().collect();
    assert_eq!(mean(&many, 5), mean(&right, 5));
}

/// Zero, negative, infinite and missing times are failures; with only failures or only equal times there is no panic
/// and no winner.
#[test]
fn times_that_are_none_never_win() {
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(TrialOutcome::of(time), TrialOutcome::Failed, "{time}");
    }
    let bowl = bowl();
    for kind in StrategyKind::ALL {
        for outcome in
            [TrialOutcome::Failed, TrialOutcome::Time(1.0), TrialOutcome::Time(5e-324), TrialOutcome::Time(f64::MAX)]
        {
            let same = Recorded { outcomes: vec![outcome; bowl.space.count()], ..bowl.clone() };
            let done = simulate(&mut *start(kind, &plan(&same.space, 0)), &same, 300);
            assert_eq!(done.asked.len(), 300, "{kind:?} {outcome:?}");
            let expected = if let TrialOutcome::Time(time) = outcome { Some(time) } else { None };
            assert_eq!(done.best.last(), Some(&expected), "{kind:?}");
            // with a budget for the whole space and no more
            let whole = plan(&same.space, 0).budget(Some(bowl.space.count()));
            let mut strategy = start(kind, &whole);
            let asked = simulate(&mut *strategy, &same, bowl.space.count()).asked;
            assert_eq!(asked.len(), bowl.space.count(), "{kind:?} {outcome:?}");
        }
        // a part of the space fails: the model still finds the best of the rest
        let mut half = bowl.clone();
        half.outcomes.iter_mut().step_by(2).for_each(|outcome| *outcome = TrialOutcome::Failed);
        let done = simulate(&mut *start(kind, &plan(&half.space, 0)), &half, 60);
        assert!(done.best.last().unwrap().is_some(), "{kind:?}");
    }
    let times = |times: &[f64]| Scale::new(times.iter().copied(), 0.95).map(|_| ()).unwrap_err();
    assert_eq!(times(&[]), NoScale::AllFailed);
    assert_eq!(times(&[2.0; 50]), NoScale::Flat);
    assert_eq!(times(&[1.0, 2.0]), NoScale::TooSmall);
}

#[test]
fn a_budget_too_small_for_anything_asks_for_nothing_or_one() {
    let bowl = bowl();
    for kind in StrategyKind::ALL {
        for budget in [0, 1] {
            let plan = plan(&bowl.space, 0).budget(Some(budget));
            let done = simulate(&mut *start(kind, &plan), &bowl, budget);
            assert_eq!((done.asked.len(), done.best.len()), (budget, budget), "{kind:?}");
        }
    }
    // a point outside the space does no harm
    for kind in StrategyKind::ALL {
        let mut strategy = start(kind, &plan(&bowl.space, 0));
        strategy.tell(usize::MAX, TrialOutcome::Time(1.0));
        assert!(strategy.ask().is_some_and(|point| point < bowl.space.count()), "{kind:?}");
    }
    let one = Space::new([config("{}")]).unwrap();
    for kind in [StrategyKind::Auto, StrategyKind::Model, StrategyKind::Random, StrategyKind::Exhaustive] {
        let mut strategy = start(kind, &plan(&one, 0));
        assert_eq!(strategy.ask(), Some(0), "{kind:?}");
        strategy.tell(0, TrialOutcome::Time(1.0));
        assert_eq!(strategy.ask(), None, "{kind:?}");
    }
}

/// The recorded spaces beside the checkout, if present: in each space, better than random search.
#[test]
fn recorded_spaces_are_searched_better_than_by_chance() {
    for (name, configs, axis_end) in
        [("convolution_milo_MI250X.json.gz", 4362, 51), ("convolution_milo_W6600_T4.json.gz", 4362, 8)]
    {
        let Some(path) = shared_data(&format!("t4/{name}")) else { continue };
        let file = std::fs::File::open(path).unwrap();
        let recorded = read(file).unwrap();
        // a few lines of Python give both figures for the same file
        let scale = Scale::new(recorded.times(), 0.95).unwrap();
        assert_eq!((recorded.space.count(), scale.end), (configs, axis_end), "{name}");
        let best = |seed| {
            let plan = StrategyPlan::new(&recorded.space, seed).budget(Some(scale.end));
            simulate(&mut *start(StrategyKind::Auto, &plan), &recorded, scale.end).best
        };
        let score = scale.score(&(0..20).map(best).collect::<Vec<_>>());
        assert!(score > 0.1, "{name}: {score}");
    }
}

/// Times 1 to 101, by the package's own arithmetic. Target of 0.95: 1 + 50 × 0.05 = 3.5, reached at place 98 of 101 in
/// descending order (time 3), so t = ceil(98 / 4) = 25. Of 0.01: 50.5, place 51 (time 50), ceil(51 / 51) = 1.
#[test]
fn the_axis_is_the_packages() {
    let scale = Scale::new((1..=101).map(f64::from), CUT_OFF).unwrap();
    assert_eq!((scale.optimum, scale.median, scale.start, scale.end), (1.0, 51.0, 1, 25));
    // r(1) = round(102 / 2) = 51, r(4) = round(81.6) = 82, r(24) = round(97.92) = 98: counted from the slowest, 101
    assert_eq!([1, 4, 24].map(|at| scale.baseline(at)), [50.0, 19.0, 3.0]);
    // Python rounds 2.5 to 2: r(1) of 4 times
    let four = Scale::new([1.0, 2.0, 3.0, 8.0], 0.5).unwrap();
    assert_eq!(four.baseline(1), 2.0);
}

#[test]
fn the_optimum_at_once_is_one_and_the_baseline_itself_is_none() {
    let scale = Scale::new((1..=101).map(f64::from), CUT_OFF).unwrap();
    assert!((scale.score(&[vec![Some(1.0)]]) - 1.0).abs() < 1e-12);
    let baseline: Vec<Option<f64>> = (1..=25).map(|at| Some(scale.baseline(at))).collect();
    assert!(scale.score(std::slice::from_ref(&baseline)).abs() < 1e-12);
    // one run at the baseline and one at the optimum: half way, on the mean of their times
    assert!((scale.score(&[baseline, vec![Some(1.0); 25]]) - 0.5).abs() < 1e-12);
    // a run without a result counts as the slowest: (B - 101) / (B - 1), far below random
    assert!(scale.score(&[vec![None; 25]]) < -1.0);
}
