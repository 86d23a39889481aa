//! Parts of recorded spaces, as large as the spaces of a call.

use autotune_lowered::search::{Space, TrialOutcome};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::recorded::Recorded;

const LEAST: usize = 24;
const MOST: usize = 64;
/// Attempts to choose parameters before a space counts as having no part of that size.
const TRIES: usize = 20_000;

/// Some configs of a call with their times.
pub(crate) struct Part {
    pub(crate) space: Space,
    pub(crate) times: Vec<Option<f64>>,
    pub(crate) baseline: usize,
}

/// So many parts of 24 to 64 configs: two to four parameters vary and the others stay as in a random config. The baseline
/// is a random one of the slower two thirds. `None` for a space without such parts.
pub(crate) fn parts_of(recorded: &Recorded, count: u32) -> Option<Vec<Part>> {
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(count));
    let parts = (0..TRIES).filter_map(|_| part(recorded, &mut random)).take(count as usize);
    let parts: Vec<Part> = parts.collect();
    (!parts.is_empty()).then_some(parts)
}

fn part(recorded: &Recorded, random: &mut ChaCha8Rng) -> Option<Part> {
    let mut below = |bound: usize| (random.next_u64() % bound.max(1) as u64) as usize;
    let space = &recorded.space;
    let mut free: Vec<usize> = space.varying().to_vec();
    let kept = 2 + below(3);
    while free.len() > kept {
        free.swap_remove(below(free.len()));
    }
    let like = below(space.count());
    let is_like = |point: &usize| {
        let pairs = space.levels(*point).iter().zip(space.levels(like)).enumerate();
        pairs.into_iter().all(|(at, (own, other))| own == other || free.contains(&at))
    };
    let mut points: Vec<usize> = (0..space.count()).filter(is_like).collect();
    let most = LEAST + below(MOST - LEAST + 1);
    while points.len() > most {
        points.swap_remove(below(points.len()));
    }
    let time = |&point: &usize| match recorded.outcome(point) {
        TrialOutcome::Time(time) => Some(time),
        TrialOutcome::Failed => None,
    };
    let times: Vec<Option<f64>> = points.iter().map(time).collect();
    let mut ran: Vec<(f64, usize)> = times.iter().enumerate().filter_map(|(at, time)| Some(((*time)?, at))).collect();
    if points.len() < LEAST || ran.len() < LEAST / 2 {
        return None;
    }
    ran.sort_by(|a, b| a.0.total_cmp(&b.0));
    let slower = ran.len() / 3;
    let (_, baseline) = ran[slower + below(ran.len() - slower)];
    Some(Part { space: Space::new(points.iter().map(|&point| space.config(point))).ok()?, times, baseline })
}
