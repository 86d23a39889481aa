//! Which of the remaining configs to look at next, by joint draws of their values.

use super::posterior::DRAWS;

/// Calibration on recorded spaces (`benches/search`): something better is missed at most this many times as often as
/// the draws say.
const SURPRISES: f64 = 5.0 / 3.0;

/// The probability of something better if this many of the draws have it.
pub(super) fn stated(better: usize) -> f64 {
    (better as f64 / DRAWS as f64 * SURPRISES).min(1.0)
}

/// How many of the next configs, at least one, must be taken so that the rest can be skipped by current knowledge.
pub(super) fn enough(draws: &[Vec<f64>], left: &[usize], least: f64, next: &[usize], chance: f64) -> usize {
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
pub(super) fn likeliest(draws: &[Vec<f64>], left: &[usize], least: f64, count: usize) -> Vec<usize> {
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

    /// Of the 2000 draws `first` have the best at the first config alone, `second` at the second alone, and the others
    /// nowhere.
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
