//! Expected improvement over the best config.

/// Expected improvement (Jones, Schonlau and Welch, Efficient global optimization of expensive black-box functions,
/// 1998, equation 15) for a mean, a deviation above zero and the best value so far, for values to be minimised.
pub(super) fn expected_improvement(mean: f64, deviation: f64, best: f64) -> f64 {
    let z = (best - mean) / deviation;
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < -4.0 {
        // φ(z) + z Φ(z) cancels far out; its series does not
        let square = 1.0 / (z * z);
        return deviation * density * square * (1.0 - 3.0 * square + 15.0 * square * square);
    }
    deviation * (density + z * below(z, density))
}

/// Φ(z), by Abramowitz and Stegun's formula 26.2.17, to 7.5e-8.
fn below(z: f64, density: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let beyond = density * series;
    if z < 0.0 { beyond } else { 1.0 - beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// φ(z) + z Φ(z) from tables of the normal distribution to seven places.
    #[test]
    fn known_values_come_out() {
        for (z, expected) in [
            (0.0, 0.398_942_3),
            (1.0, 1.083_315_5),
            (-1.0, 0.083_315_5),
            (2.0, 2.008_490_7),
            (-2.0, 0.008_490_7),
            (-3.0, 0.000_382_15),
            (-4.5, 6.942e-7),
        ] {
            let found = expected_improvement(0.0, 1.0, z);
            assert!((found - expected).abs() < 4e-7 + 0.02 * f64::from(u8::from(z < -4.0)) * expected, "{z}: {found}");
            // in other units
            assert!((expected_improvement(5.0, 2.0, 5.0 + 2.0 * z) - 2.0 * found).abs() < 1e-12);
        }
        assert!(expected_improvement(0.0, 1.0, -20.0) > 0.0);
    }
}
