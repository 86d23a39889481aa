//! Compiling in waves, on parts of recorded spaces: how much is compiled, and how often something better is missed.
//!
//! Outcomes are the recorded times with noise of one per cent.

use autotune_lowered::report::Grid;
use autotune_lowered::search::{Surrogate, WaveRules};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use serde::Serialize;

use super::parts::{Part, parts_of};
use super::prior::Prior;
use super::recorded::Recorded;

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
    let parts = parts_of(recorded, parts)?;
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
