//! Asks for the config with the largest expected improvement.

use std::collections::HashSet;

use super::fit;
use super::improvement::expected_improvement;
use super::neighbour::{Neighbour, trust};
use super::pool::Pool;
use super::shaped::{CovarianceShape, ShapedProcess};
use super::target::TimeTargets;
use crate::chance::Draw;
use crate::search::gaussian::{Coordinates, Features};
use crate::search::history::History;
use crate::search::priors;
use crate::search::space::Space;
use crate::search::strategy::{SearchStrategy, StrategyPlan, TrialOutcome};

/// Configs asked before there is a model, and how many random ones they are chosen from: enough to include one near the
/// middle.
const DESIGN: usize = 3;
const DESIGN_FROM: usize = 4096;
/// Maximum number of outcomes in a model: the best half, the others at random.
const MOST_OUTCOMES: usize = 192;
/// The neighbours' best configs asked before there is a model: a misleading one costs one question.
const FIRST_PRIORS: usize = 1;
/// Configs considered for the next question.
const MOST_LOOKED_AT: usize = 2048;
/// In a larger space, the number of best outcomes whose neighbours are considered.
const BEST: usize = 16;
/// Figures count if they raise the outcomes' log-likelihood by this much over parameters alone and over figures of
/// other configs, shuffled this many times.
const FIGURES_GAIN: f64 = 2.0;
const SHUFFLED: usize = 4;
/// The model is rebuilt when the outcomes have grown by this part, and at the latest after this many.
const GROWTH: f64 = 1.25;
const LONGEST: usize = 64;

/// Random streams: one for each use and number of outcomes.
const DESIGN_STREAM: u64 = 1 << 60;
const OUTCOMES_STREAM: u64 = 2 << 60;
const POOL_STREAM: u64 = 3 << 60;
const CHANCE_STREAM: u64 = 4 << 60;
const FIGURES_STREAM: u64 = 7 << 60;

/// The model-guided strategy. It does all its work when it observes an outcome, so that a history determines its state.
#[derive(Debug, Clone)]
pub(in crate::search) struct Guided<'a> {
    space: &'a Space,
    seed: u64,
    history: History,
    features: Features,
    neighbour: Option<Neighbour>,
    design: Vec<usize>,
    /// The shape by the parameters alone.
    shape: CovarianceShape,
    /// If there are figures: the shape with them, followed by those where each config has the figures of another one.
    figured: Vec<CovarianceShape>,
    model: Option<Model>,
    /// Number of outcomes at which the model is rebuilt.
    next_model: usize,
    next: Option<usize>,
}

#[derive(Debug, Clone)]
struct Model {
    target: TimeTargets,
    process: ShapedProcess,
    points: Vec<usize>,
    pool: Pool,
    /// How far the neighbours are trusted, and what they predict for each point.
    trust: f64,
    expected: Vec<f64>,
}

impl<'a> Guided<'a> {
    pub(in crate::search) fn new(plan: &StrategyPlan<'a>) -> Self {
        let features = Features::of(plan.space).with_figures(plan.figures);
        let shape = fit::first(&features.of_parameters(), features.early());
        let figured = fit::first(features.weights(), features.early());
        let figured = vec![figured; if features.has_figures() { 1 + SHUFFLED } else { 0 }];
        let priors = priors::points(plan);
        let mut new = Self {
            space: plan.space,
            seed: plan.seed,
            history: History::new(plan),
            neighbour: Neighbour::of(&priors, plan.space, &features),
            features,
            design: Vec::new(),
            shape,
            figured,
            model: None,
            next_model: 0,
            next: None,
        };
        let known = priors.iter().filter(|&&point| !new.history.is_seen(point));
        new.design = known.take(FIRST_PRIORS).copied().collect();
        let known = new.design.clone();
        let wanted = DESIGN.saturating_sub(known.len()).max(1);
        new.design.extend(new.design().into_iter().filter(|point| !known.contains(point)).take(wanted));
        new.next_model = new.design.len();
        new.choose();
        new
    }

    /// The first configs: one near the middle of all values, and then each as far as possible from those before.
    fn design(&self) -> Vec<usize> {
        let mut draw = Draw::new(self.seed, DESIGN_STREAM);
        let sample = (0..DESIGN_FROM).map(|_| draw.below(self.space.count()));
        let sample: Vec<usize> = sample.filter(|&point| !self.history.is_seen(point)).collect();
        let ordered = self.features.ordered();
        let weights = self.features.of_parameters().into_iter().map(|weight| f32::from(u8::from(weight > 0.0)));
        let (weights, middle): (Vec<f32>, _) = (weights.collect(), vec![0.5; ordered.len()]);
        let measure = Coordinates::new(ordered);
        let rows = self.features.rows(self.space, &sample);
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < DESIGN {
            let worth = |at: usize| match chosen.as_slice() {
                [] => -measure.distance(&weights, rows.row(at), &middle),
                chosen => {
                    let distances =
                        chosen.iter().map(|&other| measure.distance(&weights, rows.row(at), rows.row(other)));
                    distances.fold(f32::INFINITY, f32::min)
                }
            };
            let best = (0..sample.len()).map(|at| (worth(at), at)).max_by(|a, b| a.0.total_cmp(&b.0));
            match best {
                // in a space of few configs, none is distant from those chosen
                Some((worth, _)) if !chosen.is_empty() && worth <= 0.0 => break,
                Some((_, at)) => chosen.push(at),
                None => break,
            }
        }
        chosen.into_iter().filter_map(|at| sample.get(at).copied()).collect()
    }

    /// Builds the model from the outcomes; there is none while nothing ran.
    fn build(&mut self) {
        let observed = self.history.observed();
        self.model = None;
        let Some(target) = TimeTargets::cut(observed) else { return };
        let mut used = observed.to_vec();
        if used.len() > MOST_OUTCOMES {
            used.sort_by(|a, b| target.of(a.1).total_cmp(&target.of(b.1)).then(a.0.cmp(&b.0)));
            let mut others = used.split_off(MOST_OUTCOMES / 2);
            let mut draw = Draw::new(self.seed, OUTCOMES_STREAM | observed.len() as u64);
            while used.len() < MOST_OUTCOMES {
                used.push(others.swap_remove(draw.below(others.len())));
            }
        }
        let target = target.standardised(&used);
        let seen: Vec<usize> = used.iter().map(|&(point, _)| point).collect();
        let rows: Vec<Vec<f32>> = used.iter().map(|&(point, _)| self.features.row(self.space, point)).collect();
        let mut values: Vec<f64> = used.iter().map(|&(_, outcome)| target.of(outcome)).collect();
        let known = self.expected_at(&seen);
        let trust = if self.neighbour.is_some() { trust(&known, &values) } else { 0.0 };
        values.iter_mut().zip(&known).for_each(|(value, known)| *value -= trust * known);
        let shape = self.fit(&rows, &values);
        let ordered = self.features.ordered();
        used.sort_by(|a, b| target.of(a.1).total_cmp(&target.of(b.1)).then(a.0.cmp(&b.0)));
        let points = self.looked_at(used.iter().map(|&(point, _)| point));
        let mut process = ShapedProcess::new(shape, ordered);
        let mut pool = Pool::new(self.features.rows(self.space, &points));
        for (row, &value) in rows.iter().zip(&values) {
            process.add(row, value);
            pool.extend(&process);
        }
        let expected = self.expected_at(&points);
        self.model = Some(Model { target, process, points, pool, trust, expected });
    }

    /// Fits the shapes to the outcomes and returns the one for the model.
    ///
    /// Even unrelated figures make outcomes more probable, if only by keeping configs apart. So they count only if they
    /// do better than the same figures assigned to other configs.
    fn fit(&mut self, rows: &[Vec<f32>], values: &[f64]) -> CovarianceShape {
        let is_wide = rows.len() >= fit::ALL_FEATURES;
        let ordered = self.features.ordered();
        let fitted = |shape: &mut CovarianceShape, base: &[f32], rows: &[Vec<f32>]| {
            let from = if is_wide { fit::widened(shape, base) } else { shape.clone() };
            let (found, posterior) = fit::fitted(&from, base, ordered, rows, values);
            *shape = found;
            posterior
        };
        let mut most = fitted(&mut self.shape, &self.features.of_parameters(), rows);
        let Some((own, others)) = self.figured.split_first_mut() else { return self.shape.clone() };
        let by_figures = fitted(own, self.features.weights(), rows);
        let mut draw = Draw::new(self.seed, FIGURES_STREAM | self.history.observed().len() as u64);
        for other in others {
            let posterior = fitted(other, self.features.weights(), &self.features.shuffled(rows, &mut draw));
            most = most.zip(posterior).map(|(most, posterior)| most.max(posterior));
        }
        let count = by_figures.zip(most).is_some_and(|(own, most)| own > most + FIGURES_GAIN);
        if count { own.clone() } else { self.shape.clone() }
    }

    /// What the neighbours predict for points; 0 without any.
    fn expected_at(&mut self, points: &[usize]) -> Vec<f64> {
        match &mut self.neighbour {
            Some(neighbour) => neighbour.at(self.space, &self.features, points),
            None => vec![0.0; points.len()],
        }
    }

    /// The configs that the next questions are chosen from: all, or neighbours of the best and others at random.
    fn looked_at(&self, best_first: impl Iterator<Item = usize>) -> Vec<usize> {
        let count = self.space.count();
        if self.history.left() <= MOST_LOOKED_AT {
            return (0..count).filter(|&point| !self.history.is_seen(point)).collect();
        }
        let near = best_first.take(BEST).flat_map(|point| self.space.neighbours(point, false));
        let mut taken = HashSet::new();
        let mut points: Vec<usize> = near
            .filter(|&point| !self.history.is_seen(point) && taken.insert(point))
            .take(MOST_LOOKED_AT / 2)
            .collect();
        let mut draw = Draw::new(self.seed, POOL_STREAM | self.history.observed().len() as u64);
        // if few are left of many, random draws would take long to find them
        for _ in 0..16 * MOST_LOOKED_AT {
            if points.len() == MOST_LOOKED_AT {
                break;
            }
            let point = draw.below(count);
            if !self.history.is_seen(point) && taken.insert(point) {
                points.push(point);
            }
        }
        points
    }

    fn choose(&mut self) {
        let designed = || self.design.iter().copied().find(|&point| !self.history.is_seen(point));
        self.next = match &self.model {
            _ if self.history.left() == 0 => None,
            None => designed().or_else(|| self.by_chance()),
            Some(model) => self.expected(model).or_else(|| self.by_chance()),
        };
    }

    fn expected(&self, model: &Model) -> Option<usize> {
        let (_, best) = self.history.best()?;
        let best = model.target.of(TrialOutcome::Time(best));
        let scale = model.process.variance();
        let mut chosen: Option<(f64, usize)> = None;
        let known = model.points.iter().zip(&model.expected);
        for (((&point, known), &mean), &variance) in known.zip(model.pool.mean()).zip(model.pool.variance()) {
            if self.history.is_seen(point) {
                continue;
            }
            let deviation = (f64::from(variance).max(1e-9) * scale).sqrt();
            let expected = expected_improvement(f64::from(mean) + model.trust * known, deviation, best);
            if chosen.is_none_or(|(most, _)| expected > most) {
                chosen = Some((expected, point));
            }
        }
        chosen.map(|(_, point)| point)
    }

    fn by_chance(&self) -> Option<usize> {
        let count = self.space.count();
        let from = Draw::new(self.seed, CHANCE_STREAM | self.history.observed().len() as u64).below(count);
        (0..count).map(|step| (from + step) % count).find(|&point| !self.history.is_seen(point))
    }
}

impl SearchStrategy for Guided<'_> {
    fn ask(&mut self) -> Option<usize> {
        self.next
    }

    fn tell(&mut self, point: usize, outcome: TrialOutcome) {
        if !self.history.tell(point, outcome) {
            return;
        }
        let observed = self.history.observed().len();
        if observed >= self.next_model {
            self.build();
            let grown = (observed as f64 * GROWTH) as usize;
            // without a model the next outcome may be the first that ran
            self.next_model =
                if self.model.is_some() { grown.clamp(observed + 1, observed + LONGEST) } else { observed + 1 };
        } else if self.model.is_some() {
            let known = self.expected_at(&[point]).first().copied().unwrap_or_default();
            let Some(model) = &mut self.model else { return };
            let value = model.target.of(outcome) - model.trust * known;
            model.process.add(&self.features.row(self.space, point), value);
            model.pool.extend(&model.process);
        }
        self.choose();
    }
}
