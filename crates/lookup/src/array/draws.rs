//! Random numbers for fills: ChaCha8 words converted to numbers by exact arithmetic only.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::digest::FieldHasher;

/// A stream of draws.
#[derive(Clone)]
pub(super) struct Draws {
    words: ChaCha8Rng,
}

impl Draws {
    /// The stream of a seed: ChaCha8 whose key is the digest `array-fill` over the seed's eight little-endian bytes.
    pub(super) fn new(seed: u64) -> Self {
        let key = FieldHasher::new("array-fill").field(&seed.to_le_bytes()).finish();
        Self { words: ChaCha8Rng::from_seed(*key.as_bytes()) }
    }

    /// The same stream from its n-th draw of a 64-bit word on.
    pub(super) fn from(&self, draw: u64) -> Self {
        let mut words = self.words.clone();
        words.set_word_pos(u128::from(draw) * 2);
        Self { words }
    }

    /// Uniform in `[0, 1)`: the upper 53 bits of a word.
    pub(super) fn unit(&mut self) -> f64 {
        (self.words.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `0..=most`, without bias (Lemire, Fast random integer generation in an interval, 2019).
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        let Some(count) = most.checked_add(1) else { return self.words.next_u64() };
        let unfair = count.wrapping_neg() % count;
        loop {
            let product = u128::from(self.words.next_u64()) * u128::from(count);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// Adds standard normal numbers, by Marsaglia's polar method: two for each pair of words, or none for a pair that
    /// it rejects, of this many pairs.
    pub(super) fn normals(&mut self, pairs: usize, numbers: &mut Vec<f64>) {
        const BATCH: usize = 256;
        let mut points: Vec<[f64; 2]> = Vec::with_capacity(BATCH);
        let mut factors: Vec<f64> = Vec::with_capacity(BATCH);
        for first in (0..pairs).step_by(BATCH) {
            points.clear();
            factors.clear();
            for _ in first..pairs.min(first + BATCH) {
                let (u, v) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
                let square = u * u + v * v;
                if square > 0.0 && square < 1.0 {
                    points.push([u, v]);
                    factors.push(square);
                }
            }
            // a loop of its own, so that the processor computes several logarithms at once
            factors.iter_mut().for_each(|square| *square = (-2.0 * natural_log(*square) / *square).sqrt());
            let scaled = points.iter().zip(&factors).flat_map(|([u, v], factor)| [u * factor, v * factor]);
            numbers.extend(scaled);
        }
    }

    /// `count` numbers, uniform in `0..=limit`, sorted.
    pub(super) fn sorted_cuts(&mut self, count: u64, limit: u64) -> Vec<u64> {
        let mut cuts: Vec<u64> = (0..count).map(|_| self.up_to(limit)).collect();
        cuts.sort_unstable();
        cuts
    }
}

/// One over the first odd numbers.
const ODD: [f64; 11] = [
    1.0,
    1.0 / 3.0,
    1.0 / 5.0,
    1.0 / 7.0,
    1.0 / 9.0,
    1.0 / 11.0,
    1.0 / 13.0,
    1.0 / 15.0,
    1.0 / 17.0,
    1.0 / 19.0,
    1.0 / 21.0,
];

/// The natural logarithm of a positive normal number.
///
/// The platform's `ln` may differ in the last bit from machine to machine, which would change the inputs there; this
/// one uses only IEEE operations: `ln(m 2^e) = e ln 2 + 2 atanh((m - 1) / (m + 1))`.
fn natural_log(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    // |t| <= 0.1716, so the eleventh term is below 2^-53 of the first
    let series = ODD.iter().rev().fold(0.0, |sum, term| sum * square + term);
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * t * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_equals_the_platforms() {
        for k in 1..2000 {
            let x = f64::from(k) / 1999.5;
            assert!((natural_log(x) - x.ln()).abs() <= 4.0 * f64::EPSILON * x.ln().abs().max(0.1), "{x}");
        }
        assert!((natural_log(1e-300) + 690.775_527_898_213_7).abs() < 1e-12);
    }

    #[test]
    fn bounded_draws_are_fair() {
        let mut draws = Draws::new(1);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[draws.up_to(5) as usize] += 1;
        }
        // chi-square with five degrees of freedom: 20.5 is the 99.9% point
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 20.5, "{chi}: {counts:?}");
        assert_eq!(draws.up_to(0), 0);
    }
}
