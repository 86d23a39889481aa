//! Code shared by the survival tests and `benches/survival.rs`: short runs for every change, long ones for the figures.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod flips;
pub mod kills;
pub mod readers;
pub mod real;
pub mod tuning;
pub mod workers;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random numbers that depend only on the seed.
pub struct Chance(ChaCha8Rng);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }
}
