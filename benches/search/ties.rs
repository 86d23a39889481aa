//! Choosing among equals, on parts of recorded spaces: what is lost by the config that is published.
//!
//! The fifteen fastest configs of a part are raced beside its baseline, as after a search. A sample is the recorded time
//! with noise of one per cent.

use autotune_lowered::decision::{DecisionRules, JudgedOutcome, Round, judge, race};
use autotune_lowered::report::Grid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use serde::Serialize;

use super::parts::{Part, parts_of};
use super::recorded::Recorded;

/// Configs that are raced beside the baseline.
const FINALISTS: usize = 15;
/// Rounds after which a race is judged that is not settled.
const MOST_ROUNDS: usize = 40;
/// Fresh races of each part.
const RACES: u64 = 4;
/// Standard deviation of a sample, as a logarithm.
const NOISE: f64 = 0.01;

/// The result for the parts of one space.
#[derive(Debug, Serialize)]
pub(crate) struct TiesRow {
    space: String,
    races: usize,
    /// Share of the races in which the published config is not the one with the least median.
    canonical: f64,
    /// How much slower the published config is than the best: mean and 95th percentile.
    regret: f64,
    regret_95: f64,
    /// The same mean if the config with the least median were published.
    regret_of_fastest: f64,
    /// Share of the pairs of races of one part that publish different configs, and the same for the least median.
    flips: f64,
    flips_of_fastest: f64,
}

/// What a race publishes, and which config has the least median.
#[derive(Clone, Copy)]
struct Raced {
    published: usize,
    fastest: usize,
}

/// The result for this many parts; `None` for a space without such parts.
pub(crate) fn row(name: &str, recorded: &Recorded, parts: u32) -> Option<TiesRow> {
    let parts: Vec<(Vec<f64>, Vec<Raced>)> = parts_of(recorded, parts)?
        .par_iter()
        .enumerate()
        .map(|(number, part)| {
            let times = finalists(part);
            let races = (0..RACES).map(|race| raced(&times, number as u64 * RACES + race)).collect();
            (times, races)
        })
        .collect();
    let each = |of: fn(&Raced) -> usize| -> Vec<f64> {
        let regret = |(times, races): &(Vec<f64>, Vec<Raced>)| -> Vec<f64> {
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            races.iter().map(|race| times.get(of(race)).map_or(f64::NAN, |time| time / best - 1.0)).collect()
        };
        parts.iter().flat_map(regret).collect()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let flips = |of: fn(&Raced) -> usize| {
        let differ = |(_, races): &(Vec<f64>, Vec<Raced>)| -> Vec<f64> {
            let pairs =
                races.iter().enumerate().flat_map(|(at, one)| races.iter().skip(at + 1).map(move |two| (one, two)));
            pairs.map(|(one, two)| f64::from(u8::from(of(one) != of(two)))).collect()
        };
        mean(&parts.iter().flat_map(differ).collect::<Vec<f64>>())
    };
    let mut regrets = each(|race| race.published);
    regrets.sort_by(f64::total_cmp);
    let races = || parts.iter().flat_map(|(_, races)| races);
    let canonical = races().filter(|race| race.published != race.fastest).count();
    Some(TiesRow {
        space: name.to_owned(),
        races: regrets.len(),
        canonical: canonical as f64 / regrets.len() as f64,
        regret: mean(&regrets),
        regret_95: regrets.get(regrets.len() * 95 / 100).copied().unwrap_or(f64::NAN),
        regret_of_fastest: mean(&each(|race| race.fastest)),
        flips: flips(|race| race.published),
        flips_of_fastest: flips(|race| race.fastest),
    })
}

/// The times of the baseline and of the fastest configs, these in the order of the space.
fn finalists(part: &Part) -> Vec<f64> {
    let of = |point: usize| part.times.get(point).copied().flatten();
    let mut others: Vec<usize> =
        (0..part.times.len()).filter(|point| *point != part.baseline && of(*point).is_some()).collect();
    others.sort_by(|one, two| of(*one).unwrap_or(f64::INFINITY).total_cmp(&of(*two).unwrap_or(f64::INFINITY)));
    others.truncate(FINALISTS);
    others.sort_unstable();
    [part.baseline].into_iter().chain(others).filter_map(of).collect()
}

fn raced(times: &[f64], seed: u64) -> Raced {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // the sum of twelve uniform numbers
    let mut normal = || (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
    let (rules, competing) = (DecisionRules::default(), (0..times.len()).collect::<Vec<_>>());
    let mut rounds: Vec<Round> = Vec::new();
    loop {
        let state = race(&rounds, &competing, 0, &rules);
        if state.settled.is_some() || rounds.len() >= MOST_ROUNDS {
            break;
        }
        let mut sample = |(at, time): (usize, &f64)| {
            let runs = state.contenders.contains(&at) || rounds.is_empty();
            runs.then(|| 1e6 * time * (NOISE * normal()).exp())
        };
        let samples = times.iter().enumerate().map(&mut sample).collect();
        rounds.push(Round::new(0, samples));
    }
    let judged = judge(&rounds, times.len(), &competing, 0, None, &[], &rules);
    let ratios = judged.candidates.iter().enumerate().filter_map(|(at, verdict)| Some((verdict.as_ref()?.ratio, at)));
    let fastest = ratios.min_by(|one, two| one.0.total_cmp(&two.0)).map_or(0, |(_, at)| at);
    match judged.outcome {
        JudgedOutcome::Faster => Raced { published: judged.winner, fastest },
        _ => Raced { published: 0, fastest },
    }
}

pub(crate) fn table(rows: &[TiesRow], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let columns = [
        "space",
        ">races",
        ">not the fastest",
        ">regret",
        ">95th percentile",
        ">flips",
        ">fastest: regret",
        ">fastest: flips",
    ];
    let mut grid = Grid::new(&columns);
    for row in rows {
        let share = |share: f64| format!("{:.2} %", 100.0 * share);
        grid.row([
            row.space.clone(),
            row.races.to_string(),
            share(row.canonical),
            share(row.regret),
            share(row.regret_95),
            share(row.flips),
            share(row.regret_of_fastest),
            share(row.flips_of_fastest),
        ]);
    }
    grid.write(out)
}
