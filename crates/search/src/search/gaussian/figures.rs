//! What is known about configs besides their parameters, as features of the model.

/// Total weight of a config's figures, if they count.
pub(in crate::search) const FIGURES: f32 = 1.0;
/// An unknown figure is in the middle.
pub(super) const UNKNOWN: f32 = 0.5;

/// For each figure the position of every point between the smallest and the largest; `None` if all are the same.
pub(in crate::search) fn figure_columns(of_points: &[Vec<Option<f64>>]) -> Option<Vec<Vec<f32>>> {
    let width = of_points.iter().map(Vec::len).max().unwrap_or(0);
    let column = |at: usize| {
        let values = || {
            of_points.iter().map(move |figures| figures.get(at).copied().flatten().filter(|value| value.is_finite()))
        };
        let (low, high) = values()
            .flatten()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let place = |value: f64| if high > low { ((value - low) / (high - low)) as f32 } else { UNKNOWN };
        values().map(|value| value.map_or(UNKNOWN, place)).collect()
    };
    let columns: Vec<Vec<f32>> = (0..width).map(column).collect();
    columns.iter().flatten().any(|value| *value != UNKNOWN).then_some(columns)
}
