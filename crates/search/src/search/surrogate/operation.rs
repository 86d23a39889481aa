//! An operation's times over its configs, call after call.

use std::collections::BTreeMap;

use super::choice::{enough, likeliest, stated};
use super::posterior::{ConfigPlace, Observation, joint};
use super::predictions::{ExpectedRatio, Predictions, WaveRules};
use super::shape::shapes;
use crate::search::gaussian::{Coordinates, FIGURES, Features, figure_columns};
use crate::search::space::Space;
use crate::stats::quantiles;

/// Values further than this above the best are clipped: how slow a slow config is must not distort the surrogate.
const CEILING: f64 = 1.4;
/// A failed config counts as one at that ceiling with this standard deviation: it says little about its neighbours'
/// times.
const FAILED: f64 = 0.7;
/// Number of earlier calls that it learns from, and how many outcomes of each, the fastest half and others.
const CALLS_BEFORE: usize = 2;
const OUTCOMES_BEFORE: usize = 32;
/// The expected range of a config lies between these quantiles of the draws.
const EXPECTED: [f64; 3] = [0.05, 0.5, 0.95];

const SHAPES_STREAM: u64 = 5 << 60;
const DRAWS_STREAM: u64 = 6 << 60;

/// The measured times of one operation's configs. The same outcomes give the same answers.
#[derive(Debug, Clone)]
pub struct Surrogate {
    seed: u64,
    /// The earlier calls and, last, the current one.
    calls: Vec<ObservedCall>,
    /// The meaning of the rows of all calls.
    parameters: Vec<(String, bool)>,
    /// For each feature the usual weight.
    usual: Vec<f32>,
    /// How many of the features, the last ones, are figures.
    figures: usize,
}

#[derive(Debug, Clone)]
struct ObservedCall {
    rows: Coordinates,
    baseline: usize,
    /// By point the logarithm of a time and its standard deviation; `None` for a config that failed.
    observed: BTreeMap<usize, Option<(f64, f64)>>,
}

impl Surrogate {
    /// A surrogate without outcomes.
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
        self.calls.push(ObservedCall { rows: features.rows(space, &points), baseline, observed: BTreeMap::new() });
    }

    /// Sets what is known about each config of the current call besides its parameters, such as a compiler's figures:
    /// for each point the same figures in the same order, in any unit. They are further features, and the outcomes
    /// decide whether they count.
    pub fn add_figures(&mut self, of_points: &[Vec<Option<f64>>]) {
        let Some(call) = self.calls.last_mut().filter(|call| call.rows.count() == of_points.len()) else { return };
        if let Some(columns) = figure_columns(of_points) {
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
    pub fn predict(&self, known: &[usize], rules: &WaveRules) -> Predictions {
        let Some(call) = self.calls.last() else { return Predictions::default() };
        let left: Vec<usize> = (0..call.rows.count()).filter(|point| !call.observed.contains_key(point)).collect();
        if left.is_empty() {
            return Predictions::default();
        }
        if call.observed.is_empty() {
            return Predictions { chance: 1.0, left: Vec::new(), next: self.first(call, known, rules) };
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
            ExpectedRatio { ratio, low, high }
        };
        let left = left.iter().enumerate().map(|(at, &point)| (point, expected(at))).collect();
        Predictions { chance, left, next }
    }

    /// The baseline, what is known to be good, and the most promising configs by the earlier calls, or configs far
    /// apart.
    fn first(&self, call: &ObservedCall, known: &[usize], rules: &WaveRules) -> Vec<usize> {
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
    fn draws(&self, call: &ObservedCall, left: &[usize]) -> Vec<Vec<f64>> {
        let at_hand = self.calls.len() - 1;
        let mut observations = Vec::new();
        for (number, other) in self.calls.iter().enumerate() {
            let most = if number == at_hand { usize::MAX } else { OUTCOMES_BEFORE };
            observations.extend(other.outcomes(number, most));
        }
        let left: Vec<ConfigPlace> = left.iter().map(|&row| ConfigPlace { call: at_hand, row }).collect();
        let rows: Vec<Coordinates> = self.calls.iter().map(|call| call.rows.clone()).collect();
        let shapes = shapes(self.seed, SHAPES_STREAM, &self.usual, self.figures);
        joint(&rows, &shapes, &observations, &left, (self.seed, DRAWS_STREAM | call.observed.len() as u64))
    }
}

impl ObservedCall {
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
                Observation { place: ConfigPlace { call: number, row }, value: (value - best).min(CEILING), deviation }
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
