//! A machine's noise floor as a function of the program's duration.

/// How much programs were found to differ from themselves: points of a duration in nanoseconds and a relative
/// difference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// By duration; among equal ones the lowest noise floor first.
    points: Vec<(f64, f64)>,
}

impl Resolution {
    /// From points in any order. Impossible points are left out: durations that are not above zero, negative and
    /// infinite differences.
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let usable =
            |&(ns, difference): &(f64, f64)| ns.is_finite() && ns > 0.0 && difference.is_finite() && difference >= 0.0;
        let mut points: Vec<_> = points.into_iter().filter(usable).collect();
        points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        Self { points }
    }

    /// The noise floor for a program of this duration: that of the longest known program that takes no longer, since
    /// longer programs usually have a lower one. For a program shorter than all known ones, the highest noise floor.
    /// Zero if nothing is known.
    pub fn at(&self, ns: f64) -> f64 {
        let below = self.points.iter().rev().find(|(known, _)| *known <= ns);
        let worst = || self.points.iter().map(|(_, difference)| *difference).fold(0.0, f64::max);
        below.map_or_else(worst, |(_, difference)| *difference)
    }

    /// The points, the shortest program first.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_shorter_program_tells() {
        let known = Resolution::new([(1e6, 0.005), (1e3, 0.04), (1e4, 0.05), (1e6, 0.01)]);
        for (ns, difference) in
            [(10.0, 0.05), (1e3, 0.04), (9.9e3, 0.04), (1e4, 0.05), (9e5, 0.05), (1e6, 0.01), (1e12, 0.01)]
        {
            assert_eq!(known.at(ns), difference, "{ns}");
        }
        assert_eq!(known.at(f64::NAN), 0.05, "what has no duration gets no benefit of it");
        assert_eq!(Resolution::default().at(1e6), 0.0);
    }

    #[test]
    fn what_no_machine_has_is_no_point() {
        let bad = [
            (0.0, 0.1),
            (-1.0, 0.1),
            (f64::NAN, 0.1),
            (f64::INFINITY, 0.1),
            (1.0, f64::INFINITY),
            (1.0, -0.1),
            (1.0, f64::NAN),
        ];
        assert_eq!(Resolution::new(bad), Resolution::default());
    }
}
