//! A uniform sample of instances that does not depend on their order: all of them, as long as they fit.

use super::instance::Key;

/// The values of each sampled instance: one per device.
#[derive(Debug)]
pub(super) struct Sample {
    width: usize,
    most: usize,
    /// Instances whose hash begins with fewer zeros are not in it.
    zeros: u32,
    hashes: Vec<u64>,
    values: Vec<i64>,
}

impl Sample {
    /// A sample with a maximum number of instances and a number of values each.
    pub(super) fn new(width: usize, most: usize) -> Self {
        Self { width, most: most.max(1), zeros: 0, hashes: Vec::new(), values: Vec::new() }
    }

    pub(super) fn add(&mut self, key: &Key, values: impl Iterator<Item = i64>) {
        let hash = hash(key);
        if hash.leading_zeros() < self.zeros {
            return;
        }
        self.hashes.push(hash);
        self.values.extend(values);
        // equal instances have equal hashes, which no number of zeros separates
        while self.hashes.len() > self.most && self.zeros < u64::BITS {
            self.zeros += 1;
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut kept = 0;
        for place in 0..self.hashes.len() {
            let Some(&hash) = self.hashes.get(place) else { break };
            if hash.leading_zeros() < self.zeros {
                continue;
            }
            if let Some(slot) = self.hashes.get_mut(kept) {
                *slot = hash;
            }
            self.values.copy_within(place * self.width..(place + 1) * self.width, kept * self.width);
            kept += 1;
        }
        self.hashes.truncate(kept);
        self.values.truncate(kept * self.width);
    }

    /// How many instances are in it.
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The numbers at a place of each instance.
    pub(super) fn column(&self, place: usize) -> impl Iterator<Item = i64> {
        self.values.iter().skip(place).step_by(self.width.max(1)).copied()
    }
}

/// Spreads keys evenly: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over their members.
fn hash(key: &Key) -> u64 {
    let members = [
        u64::from(key.operation),
        key.execution,
        u64::from(key.occurrence),
        key.group.map_or(0, |group| u64::from(group) + 1),
    ];
    members.into_iter().fold(0, |state: u64, member| {
        let mut mixed = (state ^ member).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(execution: u64) -> Key {
        Key { operation: (execution % 7) as u32, execution, occurrence: 0, group: None }
    }

    fn sample(order: impl Iterator<Item = u64>) -> Vec<(i64, i64)> {
        let mut sample = Sample::new(2, 1000);
        for execution in order {
            sample.add(&key(execution), [execution as i64, -(execution as i64)].into_iter());
        }
        let mut pairs: Vec<(i64, i64)> = sample.column(0).zip(sample.column(1)).collect();
        assert_eq!(pairs.len(), sample.len());
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn all_are_in_it_as_long_as_they_fit() {
        assert_eq!(sample(0..1000), (0..1000).map(|value| (value, -value)).collect::<Vec<_>>());
    }

    #[test]
    fn it_is_even_and_the_same_in_any_order() {
        let forwards = sample(0..100_000);
        assert_eq!(forwards, sample((0..100_000).rev()));
        assert!(forwards.len() > 500 && forwards.iter().all(|(one, other)| *one == -other), "{}", forwards.len());
        // a tenth of it in each tenth, within five standard errors
        for tenth in 0..10 {
            let within = forwards.iter().filter(|(value, _)| value / 10_000 == tenth).count() as f64;
            let expected = forwards.len() as f64 / 10.0;
            assert!((within - expected).abs() < 5.0 * expected.sqrt(), "{within} of {expected}");
        }
    }
}
