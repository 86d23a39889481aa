//! A space's points as the numbers that the model sees.

use serde_json::Value;

use super::figures::{FIGURES, UNKNOWN, figure_columns};
use super::kernel::Coordinates;
use crate::chance::Draw;
use crate::search::space::{Parameter, Space};

/// Initial inverse squared length of a parameter: its whole range.
const WEIGHT: f32 = 1.0;
/// Weight of a parameter's alignment relative to that of the parameter.
const ALIGNMENT: f32 = 0.5;
/// Weight of two values of an ordered parameter being different at all, relative to that of the parameter. With few
/// outcomes it only blurs the trend.
const DIFFERENCE: f32 = 0.05;

/// One feature of a point: one view of a parameter's value.
#[derive(Debug, Clone)]
struct Feature {
    parameter: usize,
    /// For each of the parameter's values the number, in `[0, 1]`.
    table: Vec<f32>,
}

/// The features of each parameter that varies: the position of its value among the others, on a logarithmic scale if
/// all are above zero, since for hardware 16 to 32 is as far as 128 to 256; for integers also the power of two that
/// divides it, since hardware cares whether 96 is a multiple of 32; and, weighted later, whether it is the same.
#[derive(Debug, Clone)]
pub(in crate::search) struct Features {
    features: Vec<Feature>,
    /// For each feature whether there is a distance between its numbers.
    ordered: Vec<bool>,
    weights: Vec<f32>,
    early: Vec<bool>,
    /// Figures, which come after the other features: column by column those of the points.
    figures: Vec<Vec<f32>>,
}

impl Features {
    pub(in crate::search) fn of(space: &Space) -> Self {
        let mut new = Self {
            features: Vec::new(),
            ordered: Vec::new(),
            weights: Vec::new(),
            early: Vec::new(),
            figures: Vec::new(),
        };
        for &at in space.varying() {
            let Some(parameter) = space.parameters().get(at) else { continue };
            let count = parameter.values().len();
            let places = logarithms(parameter)
                .unwrap_or_else(|| (0..count).map(|level| level as f32 / (count - 1).max(1) as f32).collect());
            new.add(at, places.clone(), parameter.is_ordered(), WEIGHT, true);
            if let Some(aligned) = alignment(parameter) {
                new.add(at, aligned, true, WEIGHT * ALIGNMENT, true);
            }
            if parameter.is_ordered() && count > 2 {
                new.add(at, places, false, WEIGHT * DIFFERENCE, false);
            }
        }
        new
    }

    /// The same with what is known about each point besides its parameters.
    pub(in crate::search) fn with_figures(mut self, of_points: &[Vec<Option<f64>>]) -> Self {
        self.figures = figure_columns(of_points).unwrap_or_default();
        let count = self.figures.len();
        self.ordered.extend(self.figures.iter().map(|_| true));
        self.weights.extend(self.figures.iter().map(|_| FIGURES / count as f32));
        self.early.extend(self.figures.iter().map(|_| true));
        self
    }

    /// Whether anything is known about points besides their parameters.
    pub(in crate::search) fn has_figures(&self) -> bool {
        !self.figures.is_empty()
    }

    /// Weights with which only the parameters count.
    pub(in crate::search) fn of_parameters(&self) -> Vec<f32> {
        let parameters = self.features.len();
        self.weights.iter().enumerate().map(|(at, &weight)| if at < parameters { weight } else { 0.0 }).collect()
    }

    /// The same rows, each with the figures of another one.
    pub(in crate::search) fn shuffled(&self, rows: &[Vec<f32>], draw: &mut Draw) -> Vec<Vec<f32>> {
        let parameters = self.features.len();
        let other = |(row, from): (&Vec<f32>, u32)| {
            let figures = rows.get(from as usize).and_then(|other| other.get(parameters..)).unwrap_or_default();
            row.iter().take(parameters).chain(figures).copied().collect()
        };
        rows.iter().zip(draw.shuffled(rows.len())).map(other).collect()
    }

    fn add(&mut self, parameter: usize, table: Vec<f32>, ordered: bool, weight: f32, early: bool) {
        self.features.push(Feature { parameter, table });
        self.ordered.push(ordered);
        self.weights.push(weight);
        self.early.push(early);
    }

    /// Each feature's weight before any fit.
    pub(in crate::search) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// For each feature whether it has a weight from the first outcomes on.
    pub(in crate::search) fn early(&self) -> impl Iterator<Item = bool> {
        self.early.iter().copied()
    }

    /// For each feature whether there is a distance between its numbers.
    pub(in crate::search) fn ordered(&self) -> &[bool] {
        &self.ordered
    }

    /// A point's numbers.
    pub(in crate::search) fn row(&self, space: &Space, point: usize) -> Vec<f32> {
        let levels = space.levels(point);
        let number = |feature: &Feature| {
            let level = levels.get(feature.parameter).copied().unwrap_or_default();
            feature.table.get(usize::from(level)).copied().unwrap_or_default()
        };
        let figure = |column: &Vec<f32>| column.get(point).copied().unwrap_or(UNKNOWN);
        self.features.iter().map(number).chain(self.figures.iter().map(figure)).collect()
    }

    /// The numbers of many points.
    pub(in crate::search) fn rows(&self, space: &Space, points: &[usize]) -> Coordinates {
        let mut coordinates = Coordinates::new(&self.ordered);
        for &point in points {
            coordinates.push(&self.row(space, point));
        }
        coordinates
    }
}

/// The position of each value's logarithm between the smallest and the largest; `None` if a value has no logarithm.
fn logarithms(parameter: &Parameter) -> Option<Vec<f32>> {
    let logarithm = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64).filter(|&n| n > 0.0).map(f64::ln);
    let numbers: Option<Vec<f64>> = parameter.values().iter().map(logarithm).collect();
    let numbers = numbers.filter(|numbers| parameter.is_ordered() && numbers.len() > 2)?;
    let (low, high) = (numbers.first()?, numbers.last()?);
    // integers beyond 2^53 may be equal as floats
    (high > low).then(|| numbers.iter().map(|number| ((number - low) / (high - low)) as f32).collect())
}

/// The power of two in each value, if it adds information to the values' order.
fn alignment(parameter: &Parameter) -> Option<Vec<f32>> {
    let whole = |value: &Option<Value>| value.as_ref().and_then(Value::as_u64).filter(|&value| value > 0);
    let powers: Option<Vec<u32>> = parameter.values().iter().map(|v| whole(v).map(u64::trailing_zeros)).collect();
    let powers = powers.filter(|powers| parameter.is_ordered() && powers.windows(2).any(|pair| pair[1] < pair[0]))?;
    let (low, high) = (powers.iter().min()?, powers.iter().max()?);
    Some(powers.iter().map(|power| (power - low) as f32 / (high - low) as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn alignment_is_a_feature_where_it_is_not_the_order() {
        let space = |values: &[u32]| {
            let config = |value: &u32| serde_json::from_str::<Config>(&format!("{{\"b\":{value}}}")).unwrap();
            Space::new(values.iter().map(config)).unwrap()
        };
        let powers = space(&[16, 32, 64]);
        // ln(32 / 16) / ln(64 / 16); the last feature is whether the value is the same
        assert_eq!(Features::of(&powers).row(&powers, 1), [0.5, 0.5]);
        let multiples = space(&[16, 32, 48, 64]);
        let features = Features::of(&multiples);
        let place = (3.0_f64.ln() / 4.0_f64.ln()) as f32;
        assert_eq!(features.row(&multiples, 2), [place, 0.0, place]);
        assert_eq!(features.row(&multiples, 3), [1.0, 1.0, 1.0]);
        assert_eq!(features.ordered(), [true, true, false]);
    }
}
