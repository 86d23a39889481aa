//! Search strategies, driven through their public face.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::HashSet;

use autotune_lowered::candidates::CandidateSpace;
use autotune_lowered::config::Config;
use autotune_lowered::search::{
    Kind, NoScale, NoSpace, Outcome, Plan, Prior, Recorded, Scale, Space, analytic, simulate, start,
};
use serde_json::json;

fn config(text: &str) -> Config {
    serde_json::from_str(text).unwrap()
}

/// A bowl over 24 by 24 configs: the best one is at (17, 5), every other is slower.
fn bowl() -> Recorded {
    let grid: Vec<(i32, i32)> = (0..24).flat_map(|a| (0..24).map(move |b| (a, b))).collect();
    let space = Space::new(grid.iter().map(|(a, b)| config(&format!("{{\"a\":{a},\"b\":{b}}}")))).unwrap();
    let time = |&(a, b): &(i32, i32)| Outcome::of(1.0 + 0.01 * f64::from((a - 17).pow(2) + 2 * (b - 5).pow(2)));
    Recorded { space, outcomes: grid.iter().map(time).collect(), format: "simulated" }
}

fn plan(space: &Space, seed: u64) -> Plan<'_> {
    Plan { space, seed, budget: Some(60), priors: &[] }
}

#[test]
fn the_same_seed_asks_the_same_and_another_one_does_not() {
    let bowl = bowl();
    for kind in Kind::ALL {
        let asked = |seed| simulate(&mut *start(kind, &plan(&bowl.space, seed)), &bowl, 60).asked;
        assert_eq!(asked(7), asked(7), "{kind:?}");
        if kind != Kind::Exhaustive {
            assert_ne!(asked(7), asked(8), "{kind:?}");
        }
    }
}

#[test]
fn a_told_history_resumes_a_search_wherever_it_was_interrupted() {
    let bowl = bowl();
    for kind in Kind::ALL {
        let whole = simulate(&mut *start(kind, &plan(&bowl.space, 3)), &bowl, 60).asked;
        for interrupted in [1, 4, 19, 20, 33, 59] {
            let mut resumed = start(kind, &plan(&bowl.space, 3));
            for &point in &whole[..interrupted] {
                resumed.tell(point, bowl.outcome(point));
            }
            assert_eq!(resumed.ask(), Some(whole[interrupted]), "{kind:?} after {interrupted}");
            // asking changes nothing
            assert_eq!(resumed.ask(), Some(whole[interrupted]));
            resumed.tell(whole[interrupted], bowl.outcome(whole[interrupted]));
            assert_eq!(resumed.ask(), whole.get(interrupted + 1).copied().or(resumed.ask()), "{kind:?}");
        }
    }
}

#[test]
fn every_config_is_asked_once_and_then_nothing() {
    let tiles = analytic()[0].recorded().unwrap();
    for kind in [Kind::Auto, Kind::Model, Kind::Genetic, Kind::Random, Kind::Exhaustive] {
        let asked = simulate(&mut *start(kind, &plan(&tiles.space, 1)), &tiles, 10_000).asked;
        assert_eq!(asked.len(), tiles.space.count(), "{kind:?}");
        assert_eq!(asked.iter().collect::<HashSet<_>>().len(), asked.len(), "{kind:?}");
    }
}

/// The model is at the bottom of a bowl after a few steps; chance needs half of the 576 configs for it.
#[test]
fn the_model_finds_the_bottom_of_a_bowl() {
    let bowl = bowl();
    let bottom = bowl.space.find(&config(r#"{"a":17,"b":5}"#)).unwrap();
    for seed in 0..10 {
        let asked = simulate(&mut *start(Kind::Auto, &plan(&bowl.space, seed)), &bowl, 40).asked;
        assert!(asked.contains(&bottom), "seed {seed}: {asked:?}");
    }
    let by_genes = (0..10).filter(|&seed| {
        simulate(&mut *start(Kind::Genetic, &plan(&bowl.space, seed)), &bowl, 150).asked.contains(&bottom)
    });
    assert!(by_genes.count() >= 8);
}

/// Halving judges by the median of repetitions: one lucky sample does not make a winner.
#[test]
fn halving_asks_the_better_half_again() {
    let space = Space::new((0..8).map(|n| config(&format!("{{\"n\":{n}}}")))).unwrap();
    let mut halving = start(Kind::Halving, &Plan { space: &space, seed: 0, budget: Some(16), priors: &[] });
    let mut asked = Vec::new();
    for _ in 0..15 {
        let point = halving.ask().unwrap();
        // 0 is the fastest but for 7, which is fast once and slow ever after
        let time = if point == 7 && !asked.contains(&7) { 0.5 } else { 1.0 + point as f64 };
        asked.push(point);
        halving.tell(point, Outcome::of(time));
    }
    let count = |round: &[usize], point| round.iter().filter(|&&asked| asked == point).count();
    let (first, rest) = asked.split_at(8);
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 8);
    let (second, rest) = rest.split_at(4);
    assert_eq!(second.iter().copied().collect::<HashSet<_>>(), HashSet::from([0, 1, 2, 7]));
    let (third, last) = rest.split_at(2);
    assert_eq!(third.iter().copied().collect::<HashSet<_>>(), HashSet::from([0, 1]));
    assert_eq!((last, count(&asked, 0)), (&[0][..], 4));
}

#[test]
fn neighbours_are_asked_first_even_if_they_are_of_another_space() {
    let bowl = bowl();
    let prior = |text: &str, relative| Prior { config: config(text), relative };
    // out of order; one is not of this space; one is no time at all
    let priors = [
        prior(r#"{"a":3,"b":3}"#, 1.5),
        prior(r#"{"a":16.6,"b":5.2,"other":1}"#, 1.0),
        prior(r#"{"a":0,"b":0}"#, f64::NAN),
        prior(r#"{"a":17,"b":5}"#, 1.1),
    ];
    for kind in Kind::ALL {
        let plan = Plan { priors: &priors, ..plan(&bowl.space, 0) };
        let asked = simulate(&mut *start(kind, &plan), &bowl, 3).asked;
        let configs: Vec<Config> = asked.iter().map(|&point| bowl.space.config(point)).collect();
        assert_eq!(configs[..2], [config(r#"{"a":17,"b":5}"#), config(r#"{"a":3,"b":3}"#)], "{kind:?}");
    }
    // eight misleading ones cost eight evaluations
    let bad: Vec<Prior> = (0..20).map(|n| prior(&format!("{{\"a\":0,\"b\":{n}}}"), 1.0)).collect();
    let plan = Plan { priors: &bad, ..plan(&bowl.space, 0) };
    let asked = simulate(&mut *start(Kind::Auto, &plan), &bowl, 60).asked;
    assert!(asked.contains(&bowl.space.find(&config(r#"{"a":17,"b":5}"#)).unwrap()));
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
    let space = Space::of_candidates(&large).unwrap();
    assert_eq!(space.count(), 100);
    let outcomes = (0..100).map(|point| {
        let a = space.config(point).get("a").unwrap().as_f64().unwrap();
        Outcome::of(10.0 + (a - 73.0).abs())
    });
    let recorded = Recorded { outcomes: outcomes.collect(), space, format: "simulated" };
    let best = simulate(&mut *start(Kind::Auto, &plan(&recorded.space, 0)), &recorded, 40).best;
    assert_eq!(best.last(), Some(&Some(10.0)));
}

#[test]
fn spaces_that_cannot_be_searched_are_refused_with_a_reason() {
    // the baseline must be a config, so a file with contradictions is refused where it is read
    let contradiction = json!({"schema": 1, "op": "none", "parameters": {"a": [1, 2]}, "constraints": ["a > 1", "a < 2"],
                               "baseline": {"a": 1}});
    assert!(CandidateSpace::parse("none.json", &contradiction.to_string()).is_err());
    // and one whose constraints come to contradict each other with what the call gives holds no config
    let text = json!({"schema": 1, "op": "given", "given": {"rows": 2}, "parameters": {"a": [1, 2]},
                      "constraints": ["a <= rows"], "baseline": {"a": 1}});
    let given = CandidateSpace::parse("given.json", &text.to_string()).unwrap().with_given("rows", json!(0)).unwrap();
    let error = Space::of_candidates(&given).unwrap_err();
    assert_eq!(error, NoSpace::Empty);
    assert!(error.to_string().contains("constraints exclude every one"));
    let values = json!({"from": 1, "to": 1100, "step": 1});
    let wide = candidates(json!({"a": values, "b": values}), &[], json!({"a": 1, "b": 1}));
    assert_eq!(Space::of_candidates(&wide).unwrap_err(), NoSpace::TooLarge);
}

/// Zero, negative, infinite and missing times are failures; all failing and all alike end without a panic or a winner.
#[test]
fn times_that_are_none_never_win() {
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(Outcome::of(time), Outcome::Failed, "{time}");
    }
    let bowl = bowl();
    for kind in Kind::ALL {
        for outcome in [Outcome::Failed, Outcome::Time(1.0), Outcome::Time(5e-324), Outcome::Time(f64::MAX)] {
            let same = Recorded { outcomes: vec![outcome; bowl.space.count()], ..bowl.clone() };
            let done = simulate(&mut *start(kind, &plan(&same.space, 0)), &same, 300);
            assert_eq!(done.asked.len(), 300, "{kind:?} {outcome:?}");
            let expected = if let Outcome::Time(time) = outcome { Some(time) } else { None };
            assert_eq!(done.best.last(), Some(&expected), "{kind:?}");
        }
        // a part of the space fails: the model goes on to find the best of the rest
        let mut half = bowl.clone();
        half.outcomes.iter_mut().step_by(2).for_each(|outcome| *outcome = Outcome::Failed);
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
    for kind in Kind::ALL {
        for budget in [0, 1] {
            let plan = Plan { budget: Some(budget), ..plan(&bowl.space, 0) };
            let done = simulate(&mut *start(kind, &plan), &bowl, budget);
            assert_eq!((done.asked.len(), done.best.len()), (budget, budget), "{kind:?}");
        }
    }
    // a point that is none of the space's is told to no harm
    for kind in Kind::ALL {
        let mut strategy = start(kind, &plan(&bowl.space, 0));
        strategy.tell(usize::MAX, Outcome::Time(1.0));
        assert!(strategy.ask().is_some_and(|point| point < bowl.space.count()), "{kind:?}");
    }
    let one = Space::new([config("{}")]).unwrap();
    for kind in [Kind::Auto, Kind::Model, Kind::Genetic, Kind::Random, Kind::Exhaustive] {
        let mut strategy = start(kind, &plan(&one, 0));
        assert_eq!(strategy.ask(), Some(0), "{kind:?}");
        strategy.tell(0, Outcome::Time(1.0));
        assert_eq!(strategy.ask(), None, "{kind:?}");
    }
}

/// The recorded spaces beside the checkout, where they are: whatever the space, better than chance.
#[test]
fn recorded_spaces_are_searched_better_than_by_chance() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/t4");
    for (name, configs, axis_end) in
        [("convolution_milo_MI250X.json.gz", 4362, 51), ("convolution_milo_W6600_T4.json.gz", 4362, 8)]
    {
        let Ok(file) = std::fs::File::open(folder.join(name)) else {
            eprintln!("skipped: {} is not there", folder.join(name).display());
            continue;
        };
        let recorded = autotune_lowered::search::read(file).unwrap();
        // both figures by a few lines of Python on the same file
        let scale = Scale::new(recorded.times(), 0.95).unwrap();
        assert_eq!((recorded.space.count(), scale.end), (configs, axis_end), "{name}");
        let best = |seed| {
            let plan = Plan { space: &recorded.space, seed, budget: Some(scale.end), priors: &[] };
            simulate(&mut *start(Kind::Auto, &plan), &recorded, scale.end).best
        };
        let score = scale.score(&(0..20).map(best).collect::<Vec<_>>());
        assert!(score > 0.1, "{name}: {score}");
    }
}
