//! An operation's times over its configs, call after call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::posterior::{DRAWS, Observation, Place, joint};
use super::shape::shapes;
use crate::search::figures::{self, FIGURES};
use crate::search::model::{Coordinates, Features};
use crate::search::space::Space;
use crate::setters;
use crate::stats::quantiles;

/// Values further than this above the best are clipped: how slow a slow config is must not distort the surface.
const CEILING: f64 = 1.4;
/// A failed config counts as one at that ceiling with this standard deviation: it says little about its neighbours'
/// times.
const FAILED: f64 = 0.7;
/// Number of earlier calls that it learns from, and how many outcomes of each, the fastest half and others.
const CALLS_BEFORE: usize = 2;
const OUTCOMES_BEFORE: usize = 32;
/// Calibration on recorded spaces (`benches/search`): something better is missed at most this many times as often as
/// the draws say.
const SURPRISES: f64 = 5.0 / 3.0;
/// The expected range of a config lies between these quantiles of the draws.
const EXPECTED: [f64; 3] = [0.05, 0.5, 0.95];

const SHAPES_STREAM: u64 = 5 << 60;
const DRAWS_STREAM: u64 = 6 << 60;

/// When configs may be skipped.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct WaveRules {
    /// Part of the best config's time that a better one must save to matter.
    pub least_gain: f64,
    /// The noise floor: a config that is better by less does not matter either.
    pub noise_floor: f64,
    /// The skipped configs together may be better with this probability.
    pub chance: f64,
    /// Configs of the first wave, the baseline included.
    pub first: usize,
    /// Configs of each later one.
    pub wave: usize,
}

setters!(WaveRules { least_gain: f64, noise_floor: f64, chance: f64, first: usize, wave: usize });

impl WaveRules {
    /// Waves of this many configs, the first half as large again; what is skipped may gain 2% with a probability of 5%.
    pub fn new(wave: usize) -> Self {
        let wave = wave.max(1);
        Self { least_gain: 0.02, noise_floor: 0.0, chance: 0.05, first: wave + wave / 2, wave }
    }
}

/// The expected ratio of a config's time to another one's; [`Surface::outlook`] takes the best measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Expected {
    /// The median.
    pub ratio: f64,
    /// The ratio is below this with a probability of 5%.
    pub low: f64,
    /// The ratio is above this with a probability of 5%. Times above four times the best's are not distinguished.
    pub high: f64,
}

/// Predictions for the configs of a call that were not measured.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Outlook {
    /// Probability that any of them is better than the best by the least gain and by more than the noise floor.
    pub chance: f64,
    /// Each with its expected ratio.
    pub left: Vec<(usize, Expected)>,
    /// Which to compile and look at next, the likeliest first; none if all can be skipped.
    pub next: Vec<usize>,
}

impl Expected {
    /// Relative to another program, which takes the best's time divided by `factor`.
    pub fn scaled(self, factor: f64) -> Self {
        Self { ratio: self.ratio * factor, low: self.low * factor, high: self.high * factor }
    }
}

impl Outlook {
    /// With the caller's numbers instead of points; without those that it does not have.
    pub fn renumbered(self, number: impl Fn(usize) -> Option<usize>) -> Self {
        let left = self.left.into_iter().filter_map(|(point, expected)| Some((number(point)?, expected))).collect();
        Self { left, next: self.next.into_iter().filter_map(&number).collect(), ..self }
    }
}

/// The measured times of one operation's configs. The same outcomes give the same answers.
#[derive(Debug, Clone)]
pub struct Surface {
    seed: u64,
    /// The earlier calls and, last, the current one.
    calls: Vec<Call>,
    /// The meaning of the rows of all calls.
    parameters: Vec<(String, bool)>,
    /// For each feature the usual weight.
    usual: Vec<f32>,
    /// How many of the features, the last ones, are figures.
    figures: usize,
}

#[derive(Debug, Clone)]
struct Call {
    rows: Coordinates,
    baseline: usize,
    /// By point the logarithm of a time and its standard deviation; `None` for a config that failed.
    observed: BTreeMap<usize, Option<(f64, f64)>>,
}

impl Surface {
    /// A surface without outcomes.
    pub fn new(seed: u64) -> Self {
        Self { seed, calls: Vec::new(), parameters: Vec::new(), usual: Vec::new(), figures: 0 }
    }

    /// Begins another call with these configs and this baseline. Earlier calls are its neighbours if they have the same
    /// parameters; each parameter's value counts by its position between the smallest and the largest of its own call.
    pub fn begin(&mut self, space: &Space, baseline: usize) {
        let features = Features::of(space);
        let varying = space.varying().iter().filter_map(|&at| space.parameters().get(at));
        let mut parameters: Vec<(String, bool)> = varying.map(|one| (one.name(), one.is_ordered())).collect();
        // a parameter may have one more feature in one call than in another
        parameters.extend(features.ordered().iter().map(|&ordered| (String::new(), ordered)));
        if parameters != self.parameters {
            self.calls.clear();
        }
        self.calls.retain(|call| !call.observed.is_empty());
        self.calls.drain(..self.calls.len().saturating_sub(CALLS_BEFORE));
        self.parameters = parameters;
        self.usual = features.weights().to_vec();
        self.figures = 0;
        let points: Vec<usize> = (0..space.count()).collect();
        self.calls.push(Call { rows: features.rows(space, &points), baseline, observed: BTreeMap::new() });
    }

    /// Sets what is known about each config of the current call besides its parameters, such as a compiler's figures:
    /// for each point the same figures in the same order, in any unit. They are further features, and the outcomes
    /// decide whether they count.
    pub fn add_figures(&mut self, of_points: &[Vec<Option<f64>>]) {
        let Some(call) = self.calls.last_mut().filter(|call| call.rows.count() == of_points.len()) else { return };
        if let Some(columns) = figures::columns(of_points) {
            call.rows.widen(&columns);
            self.usual.extend(columns.iter().map(|_| FIGURES / columns.len() as f32));
            self.figures = columns.len();
        }
    }

    /// Sets the measurement of a config of the current call: the logarithm of its time, in any unit, and its standard
    /// deviation; `None` if it failed. It replaces an earlier one.
    pub fn tell(&mut self, point: usize, outcome: Option<(f64, f64)>) {
        if let Some(call) = self.calls.last_mut().filter(|call| point < call.rows.count()) {
            call.observed
                .insert(point, outcome.filter(|(value, deviation)| value.is_finite() && deviation.is_finite()));
        }
    }

    /// Predictions for the rest of the current call. Configs that are known to be good elsewhere belong to the first
    /// wave.
    ///
    /// While nothing is faster than the baseline by the least gain, nothing is skipped: a single config may be the only
    /// one that helps.
    pub fn outlook(&self, known: &[usize], rules: &WaveRules) -> Outlook {
        let Some(call) = self.calls.last() else { return Outlook::default() };
        let left: Vec<usize> = (0..call.rows.count()).filter(|point| !call.observed.contains_key(point)).collect();
        if left.is_empty() {
            return Outlook::default();
        }
        if call.observed.is_empty() {
            return Outlook { chance: 1.0, left: Vec::new(), next: self.first(call, known, rules) };
        }
        let draws = self.draws(call, &left);
        let least = (1.0 - rules.least_gain).ln().min(-rules.noise_floor.ln_1p());
        let is_better = |draw: &&Vec<f64>| draw.iter().any(|value| *value < least);
        let chance = stated(draws.iter().filter(is_better).count());
        let is_enough = chance <= rules.chance && call.gain() >= -(1.0 - rules.least_gain).ln();
        let mut next = if is_enough { Vec::new() } else { likeliest(&draws, &left, least, rules.wave) };
        if call.gain() >= -(1.0 - rules.least_gain).ln() {
            next.truncate(enough(&draws, &left, least, &next, rules.chance));
        }
        let expected = |at: usize| {
            let values: Vec<f64> = draws.iter().filter_map(|draw| draw.get(at).copied()).collect();
            let [low, ratio, high] = quantiles(&values, EXPECTED).map(|value| value.map_or(f64::NAN, f64::exp));
            Expected { ratio, low, high }
        };
        let left = left.iter().enumerate().map(|(at, &point)| (point, expected(at))).collect();
        Outlook { chance, left, next }
    }

    /// The baseline, what is known to be good, and the most promising configs by the earlier calls, or configs far
    /// apart.
    fn first(&self, call: &Call, known: &[usize], rules: &WaveRules) -> Vec<usize> {
        let mut wave = vec![call.baseline];
        for &point in known.iter().filter(|&&point| point < call.rows.count()) {
            if !wave.contains(&point) && wave.len() < rules.first.div_ceil(2) {
                wave.push(point);
            }
        }
        if self.calls.len() > 1 {
            let left: Vec<usize> = (0..call.rows.count()).filter(|point| !wave.contains(point)).collect();
            let draws = self.draws(call, &left);
            let more = rules.wave.saturating_sub(wave.len()).max(1);
            wave.extend(likeliest(&draws, &left, f64::INFINITY, more));
            return wave;
        }
        while wave.len() < rules.first.min(call.rows.count()) {
            let distance = |point: usize| {
                let to = |&other: &usize| call.rows.distance(&self.usual, call.rows.row(point), call.rows.row(other));
                wave.iter().map(to).fold(f32::INFINITY, f32::min)
            };
            let others = (0..call.rows.count()).filter(|point| !wave.contains(point));
            // among equally distant ones the first
            let farthest =
                others.map(|point| (distance(point), point)).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, point)) = farthest else { break };
            wave.push(point);
        }
        wave
    }

    /// Joint draws of the values of the remaining configs, relative to the best measured one.
    fn draws(&self, call: &Call, left: &[usize]) -> Vec<Vec<f64>> {
        let at_hand = self.calls.len() - 1;
        let mut observations = Vec::new();
        for (number, other) in self.calls.iter().enumerate() {
            let most = if number == at_hand { usize::MAX } else { OUTCOMES_BEFORE };
            observations.extend(other.outcomes(number, most));
        }
        let left: Vec<Place> = left.iter().map(|&row| Place { call: at_hand, row }).collect();
        let rows: Vec<Coordinates> = self.calls.iter().map(|call| call.rows.clone()).collect();
        let shapes = shapes(self.seed, SHAPES_STREAM, &self.usual, self.figures);
        joint(&rows, &shapes, &observations, &left, (self.seed, DRAWS_STREAM | call.observed.len() as u64))
    }
}

impl Call {
    fn best(&self) -> Option<f64> {
        self.observed.values().flatten().map(|(value, _)| *value).min_by(f64::total_cmp)
    }

    /// How much faster than the baseline the best is, as a logarithm.
    fn gain(&self) -> f64 {
        let of_baseline = self.observed.get(&self.baseline).copied().flatten();
        of_baseline.zip(self.best()).map_or(0.0, |((baseline, _), best)| baseline - best)
    }

    /// The outcomes for the posterior; of more than `most` the fastest half and others evenly from the rest.
    fn outcomes(&self, number: usize, most: usize) -> Vec<Observation> {
        let best = self.best().unwrap_or(0.0);
        let mut observations: Vec<Observation> = self
            .observed
            .iter()
            .map(|(&row, outcome)| {
                let (value, deviation) = outcome.unwrap_or((f64::INFINITY, FAILED));
                Observation { place: Place { call: number, row }, value: (value - best).min(CEILING), deviation }
            })
            .collect();
        if observations.len() > most {
            observations.sort_by(|a, b| a.value.total_cmp(&b.value).then(a.place.row.cmp(&b.place.row)));
            let slower = observations.split_off(most / 2);
            let step = slower.len().div_ceil(most - most / 2);
            observations.extend(slower.into_iter().step_by(step));
        }
        observations
    }
}

/// The probability of something better if this many of the draws have it.
fn stated(better: usize) -> f64 {
    (better as f64 / DRAWS as f64 * SURPRISES).min(1.0)
}

/// How many of the next configs, at least one, must be taken so that the rest can be skipped by current knowledge.
fn enough(draws: &[Vec<f64>], left: &[usize], least: f64, next: &[usize], chance: f64) -> usize {
    let place = |point: &usize| next.iter().position(|one| one == point).unwrap_or(usize::MAX);
    let places: Vec<usize> = left.iter().map(place).collect();
    // for each draw how many of the next must be taken until nothing better remains
    let needed = |draw: &Vec<f64>| {
        let better = draw.iter().zip(&places).filter(|(value, _)| **value < least);
        better.map(|(_, &place)| place.saturating_add(1)).max().unwrap_or(0)
    };
    let needed: Vec<usize> = draws.iter().map(needed).collect();
    let is_enough = |count: &usize| stated(needed.iter().filter(|needed| *needed > count).count()) <= chance;
    (1..next.len()).find(is_enough).unwrap_or(next.len())
}

/// The configs that are most often the best in draws where any is better than `least`; among those that never are,
/// those that are most often better.
fn likeliest(draws: &[Vec<f64>], left: &[usize], least: f64, count: usize) -> Vec<usize> {
    let mut scores = vec![0.0; left.len()];
    for draw in draws {
        let best = draw.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, value)| **value < least);
        if let Some(score) = best.and_then(|(at, _)| scores.get_mut(at)) {
            *score += 1.0;
        }
        for (score, value) in scores.iter_mut().zip(draw) {
            // below any count of the best
            *score += if *value < least { 1.0 / draws.len() as f64 } else { 0.0 };
        }
    }
    let mut order: Vec<(f64, usize)> = scores.into_iter().zip(left.iter().copied()).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order.into_iter().take(count).map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the 2000 draws `first` have the best at the first config alone, `second` at the second alone, and the others nowhere.
    fn draws(first: usize, second: usize) -> Vec<Vec<f64>> {
        let draw = |number: usize| match number {
            _ if number < first => vec![0.0, -1.0, 0.0],
            _ if number < first + second => vec![-1.0, 0.0, 0.0],
            _ => vec![0.0; 3],
        };
        (0..DRAWS).map(draw).collect()
    }

    #[test]
    fn a_wave_ends_where_the_rest_can_be_left() {
        let left = [4, 7, 9];
        let wave = |draws: &[Vec<f64>]| {
            let mut next = likeliest(draws, &left, -0.1, 3);
            next.truncate(enough(draws, &left, -0.1, &next, 0.05));
            next
        };
        // 60 of 2000, and two thirds again as often, is 5%
        assert_eq!(wave(&draws(400, 60)), [7]);
        assert_eq!(wave(&draws(400, 61)), [7, 4]);
        assert_eq!(wave(&draws(61, 400)), [4, 7]);
        assert_eq!(wave(&draws(0, 0)).len(), 1, "a wave is never empty");
    }
}
