//! Count, mean and deviation in one pass.

/// Count, mean and variance of a stream of numbers (Welford, Technometrics 4 (1962) 419).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
}

impl Moments {
    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Adds the numbers of another one (Chan, Golub and LeVeque, 1979).
    pub fn join(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.count += other.count;
        self.mean += apart * theirs / (ours + theirs);
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
    }

    /// Their count.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; zero if there were none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their sample standard deviation, with n − 1; `None` below two.
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_equal_numpy() {
        // numpy.mean and numpy.std(ddof=1) of [3, 1, 4, 1, 5, 9, 2, 6]
        let mut moments = Moments::default();
        [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0].into_iter().for_each(|value| moments.add(value));
        assert_eq!((moments.count(), moments.mean()), (8, 3.875));
        assert!((moments.deviation().unwrap() - 2.748_376_143_938_713).abs() < 1e-12);
        let mut rest = Moments::default();
        moments = Moments::default();
        [3.0, 1.0, 4.0].into_iter().for_each(|value| moments.add(value));
        [1.0, 5.0, 9.0, 2.0, 6.0].into_iter().for_each(|value| rest.add(value));
        moments.join(rest);
        moments.join(Moments::default());
        assert!((moments.mean() - 3.875).abs() < 1e-12 && moments.count() == 8);
        assert!((moments.deviation().unwrap() - 2.748_376_143_938_713).abs() < 1e-12);
        let mut one = Moments::default();
        one.add(7.0);
        assert_eq!((one.mean(), one.deviation()), (7.0, None));
    }
}
