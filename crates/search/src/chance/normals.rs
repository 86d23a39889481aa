//! Normal numbers, and others made of them.

use super::draw::Draw;

/// Resolution of a uniform number.
const PARTS: usize = 1 << 53;

/// Normal numbers of one stream.
#[derive(Debug)]
pub(crate) struct Normals {
    draw: Draw,
    /// Box and Muller's transform makes two at a time.
    kept: Option<f64>,
}

impl Normals {
    pub(crate) fn new(draw: Draw) -> Self {
        Self { draw, kept: None }
    }

    /// A number strictly between zero and one.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.draw.below(PARTS) as f64 + 0.5) / PARTS as f64
    }

    /// A standard normal number.
    pub(crate) fn next(&mut self) -> f64 {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * self.uniform();
        self.kept = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// This many of them.
    pub(crate) fn take(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next()).collect()
    }

    /// A number of the χ² distribution: with this many degrees of freedom.
    pub(crate) fn chi_squared(&mut self, degrees: usize) -> f64 {
        (0..degrees).map(|_| self.next().powi(2)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut normals = Normals::new(Draw::new(7, 1));
        let numbers = normals.take(20_000);
        let mean = |of: &dyn Fn(f64) -> f64| numbers.iter().map(|&x| of(x)).sum::<f64>() / numbers.len() as f64;
        // four standard errors: 1, √2 and √96 over √20 000
        assert!(mean(&|x| x).abs() < 0.03 && (mean(&|x| x * x) - 1.0).abs() < 0.04);
        assert!((mean(&|x| x.powi(4)) - 3.0).abs() < 0.28);
        let squares = (0..4000).map(|_| normals.chi_squared(5)).sum::<f64>() / 4000.0;
        assert!((squares - 5.0).abs() < 0.2, "{squares}");
    }
}
