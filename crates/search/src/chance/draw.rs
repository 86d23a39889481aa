//! Seeded choices.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of choices.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    words: ChaCha8Rng,
}

impl Draw {
    /// The stream of a seed at a place of its own, such as the number of outcomes observed.
    pub(crate) fn new(seed: u64, place: u64) -> Self {
        let mut words = ChaCha8Rng::seed_from_u64(seed);
        words.set_stream(place);
        Self { words }
    }

    /// A number below `bound`, 0 for a bound of 0. The bias of the multiplication is below `bound` in 2^64.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.words.next_u64()) * bound as u128) >> 64) as usize
    }

    /// The numbers below `count` in random order (Fisher and Yates).
    pub(crate) fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.below(at + 1));
        }
        order
    }
}
