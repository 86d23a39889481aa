//! Compiling in waves, on parts of recorded spaces: how much is compiled, and how often something better is missed.
//!
//! A part has 24 to 64 configs: two to four parameters vary and the others stay as in a random config. Its baseline is
//! a random one of the slower two thirds. Outcomes are the recorded times with noise of one per cent.

use autotune_lowered::report::Grid;
use autotune_lowered::search::{Space, Surrogate, TrialOutcome, WaveRules};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use serde::Serialize;

use super::prior::Prior;
use super::recorded::Recorded;

const LEAST: usize = 24;
const MOST: usize = 64;
/// Attempts to choose parameters before a space counts as having no part of that size.
const TRIES: usize = 20_000;
/// Standard deviation of a measurement, as a logarithm.
const NOISE: f64 = 0.01;

/// The result for the parts of one space.
#[derive(Debug, Serialize)]
pub(crate) struct WavesRow {
    space: String,
    parts: usize,
    /// Mean share of the configs that was compiled.
    compiled: f64,
    /// Mean number of waves.
    waves: f64,
    /// Share of the parts in which a skipped config is better by the minimum improvement.
    missed: f64,
    /// Mean of that probability as the rule estimated it when it stopped.
    said: f64,
    /// How much slower the best compiled config is than the best: mean and 95th percentile.
    regret: f64,
    regret_95: f64,
    /// The best time over the best time so far: mean over the evaluations that compiling everything takes, and over the
    /// parts.
    score: f64,
}

/// Some configs of a call with their times.
struct Part {
    space: Space,
    times: Vec<Option<f64>>,
    baseline: usize,
}

struct Ran {
    compiled: f64,
    waves: usize,
    missed: bool,
    said: f64,
    regret: f64,
    score: f64,
}

/// The result for this many parts; `None` for a space without such parts.
pub(crate) fn row(
    name: &str,
    recorded: &Recorded,
    parts: u32,
    rules: &WaveRules,
    prior: Option<Prior>,
) -> Option<WavesRow> {
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(parts));
    let parts = (0..TRIES).filter_map(|_| part(recorded, &mut random)).take(parts as usize);
    let parts: Vec<Part> = parts.collect();
    if parts.is_empty() {
        return None;
    }
    let runs: Vec<Ran> =
        parts.par_iter().enumerate().map(|(seed, part)| run(part, seed as u64, rules, prior)).collect();
    let mean = |of: &dyn Fn(&Ran) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let mut regrets: Vec<f64> = runs.iter().map(|run| run.regret).collect();
    regrets.sort_by(f64::total_cmp);
    Some(WavesRow {
        space: name.to_owned(),
        parts: runs.len(),
        compiled: mean(&|run| run.compiled),
        waves: mean(&|run| run.waves as f64),
        missed: mean(&|run| f64::from(u8::from(run.missed))),
        said: mean(&|run| run.said),
        regret: mean(&|run| run.regret),
        regret_95: regrets.get(regrets.len() * 95 / 100).copied().unwrap_or(f64::NAN),
        score: mean(&|run| run.score),
    })
}

fn part(recorded: &Recorded, random: &mut ChaCha8Rng) -> Option<Part> {
    let mut below = |bound: usize| (random.next_u64() % bound.max(1) as u64) as usize;
    let space = &recorded.space;
    let mut free: Vec<usize> = space.varying().to_vec();
    let kept = 2 + below(3);
    while free.len() > kept {
        free.swap_remove(below(free.len()));
    }
    let like = below(space.count());
    let is_like = |point: &usize| {
        let pairs = space.levels(*point).iter().zip(space.levels(like)).enumerate();
        pairs.into_iter().all(|(at, (own, other))| own == other || free.contains(&at))
    };
    let mut points: Vec<usize> = (0..space.count()).filter(is_like).collect();
    let most = LEAST + below(MOST - LEAST + 1);
    while points.len() > most {
        points.swap_remove(below(points.len()));
    }
    let time = |&point: &usize| match recorded.outcome(point) {
        TrialOutcome::Time(time) => Some(time),
        TrialOutcome::Failed => None,
    };
    let times: Vec<Option<f64>> = points.iter().map(time).collect();
    let mut ran: Vec<(f64, usize)> = times.iter().enumerate().filter_map(|(at, time)| Some(((*time)?, at))).collect();
    if points.len() < LEAST || ran.len() < LEAST / 2 {
        return None;
    }
    ran.sort_by(|a, b| a.0.total_cmp(&b.0));
    let slower = ran.len() / 3;
    let (_, baseline) = ran[slower + below(ran.len() - slower)];
    Some(Part { space: Space::new(points.iter().map(|&point| space.config(point))).ok()?, times, baseline })
}

fn run(part: &Part, seed: u64, rules: &WaveRules, prior: Option<Prior>) -> Ran {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // the sum of twelve uniform numbers
    let mut normal = || (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
    let looks: Vec<Option<f64>> = part.times.iter().map(|time| time.map(|time| time.ln() + NOISE * normal())).collect();
    let mut surrogate = Surrogate::new(seed);
    surrogate.begin(&part.space, part.baseline);
    if let Some(prior) = prior {
        surrogate.add_figures(&prior.figures(part.times.iter().copied(), seed));
    }
    let (mut best, mut found) = (None::<f64>, Vec::new());
    let (mut waves, mut compiled) = (0, vec![false; part.times.len()]);
    let said = loop {
        let predictions = surrogate.predict(&[], rules);
        if predictions.next.is_empty() {
            break predictions.chance;
        }
        waves += 1;
        for point in predictions.next {
            compiled[point] = true;
            best = best.into_iter().chain(part.times[point]).reduce(f64::min);
            found.push(best);
            surrogate.tell(point, looks[point].map(|look| (look, NOISE)));
        }
    };
    let best_of = |of: bool| {
        let times = part.times.iter().zip(&compiled).filter(|(_, compiled)| of == **compiled);
        times.filter_map(|(time, _)| *time).fold(f64::INFINITY, f64::min)
    };
    let curve = found;
    let (found, left) = (best_of(true), best_of(false));
    Ran {
        compiled: compiled.iter().filter(|compiled| **compiled).count() as f64 / compiled.len() as f64,
        waves,
        missed: left < found * (1.0 - rules.least_gain),
        said,
        regret: (found / left - 1.0).max(0.0),
        score: score(part, &curve),
    }
}

/// How near to the best an order comes and how early; `curve` has the best after each evaluation.
fn score(part: &Part, curve: &[Option<f64>]) -> f64 {
    let times = || part.times.iter().copied().flatten();
    let (best, slowest) = (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
    let so_far = |at: usize| curve.get(at).or(curve.last()).copied().flatten().unwrap_or(slowest);
    let count = part.times.len();
    (0..count).map(|at| best / so_far(at)).sum::<f64>() / count as f64
}

pub(crate) fn table(rows: &[WavesRow], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let columns =
        ["space", ">parts", ">compiled", ">waves", ">better left", ">said", ">regret", ">95th percentile", ">score"];
    let mut grid = Grid::new(&columns);
    for row in rows {
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        grid.row([
            row.space.clone(),
            row.parts.to_string(),
            share(row.compiled),
            format!("{:.1}", row.waves),
            share(row.missed),
            share(row.said),
            share(row.regret),
            share(row.regret_95),
            format!("{:.3}", row.score),
        ]);
    }
    grid.write(out)
}
