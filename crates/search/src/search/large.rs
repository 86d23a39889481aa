//! The space of a candidate file: all of its configs, or a random sample if there are too many.

use std::collections::HashSet;

use super::columns::Columns;
use super::space::{MAX_POINTS, NoSpace, Space};
use crate::candidates::{CandidateSpace, Descent};
use crate::chance::Draw;
use crate::config::Config;

/// Maximum number of choices visited by a walk through all configs, or by the descents that replace it.
pub const MAX_STEPS: u64 = 1 << 21;
/// Choices after which a walk is abandoned if at its pace it will not end within [`MAX_STEPS`].
const EARLY: u64 = 1 << 16;
/// How much faster the rest of a walk may be than what came before.
const FASTER: f64 = 4.0;
/// Configs of a sample.
pub const SAMPLE: usize = 1 << 14;
/// Stop after this many consecutive fruitless descents: the rest is not worth the steps.
const IN_VAIN: usize = 64;
/// Descents before the walk: they prove most contradictions at once.
const PROBES: usize = 4;

impl Space {
    /// The space of a candidate file: its constraints are walked, its product is not built.
    ///
    /// If the walk reaches more than [`MAX_POINTS`] configs or [`MAX_STEPS`] choices, or would at its pace, the space
    /// is a sample ([`Space::is_sample`]): the listed configs, the baseline, and up to [`SAMPLE`] at random, the same
    /// for the same seed.
    ///
    /// # Errors
    /// As [`Space::new`], and where a constraint cannot be evaluated, or neither the walk nor the descents find a
    /// config.
    pub fn of_candidates(candidates: &CandidateSpace, seed: u64) -> Result<Self, NoSpace> {
        let mut draw = Draw::new(seed, 0);
        let mut descents = candidates.descents();
        let mut none = false;
        for _ in 0..PROBES {
            match descents.descend(&mut |bound| draw.below(bound))? {
                Descent::Found(_) => break,
                Descent::Empty => none = true,
                Descent::Stuck => {}
            }
        }
        if !none
            && candidates.is_bounded_by(MAX_POINTS as u128)
            && let Some(space) = walked(candidates)?
        {
            return Ok(space);
        }
        let (mut columns, mut known) = (Columns::default(), HashSet::new());
        let mut take = |config: Config| -> Result<bool, NoSpace> {
            let new = known.insert(config.clone());
            if new {
                columns.add(&config)?;
            }
            Ok(new)
        };
        for config in candidates.listed() {
            take(config.clone())?;
        }
        if none {
            return columns.into_space();
        }
        // with other given values it may not be one
        if candidates.contains(candidates.baseline())? {
            take(candidates.baseline().clone())?;
        }
        let (mut found, mut vain) = (0, 0);
        while found < SAMPLE && vain < IN_VAIN && descents.steps() < MAX_STEPS {
            match descents.descend(&mut |bound| draw.below(bound))? {
                Descent::Empty => break,
                Descent::Found(config) => {
                    (found, vain) = if take(config)? { (found + 1, 0) } else { (found, vain + 1) }
                }
                Descent::Stuck => vain += 1,
            }
        }
        match columns.into_space() {
            Ok(space) => Ok(Space { sampled: true, ..space }),
            Err(NoSpace::Empty) => Err(NoSpace::NoneFound(descents.steps())),
            Err(error) => Err(error),
        }
    }

    /// The same space plus the configs that differ from some of its points in one value, if it is a sample of these
    /// candidates. Points keep their numbers, so that a strategy of the new space can replay the outcomes so far.
    ///
    /// # Errors
    /// As [`Space::of_candidates`].
    pub fn with_neighbours(&self, candidates: &CandidateSpace, points: &[usize]) -> Result<Self, NoSpace> {
        let mut columns = Columns::default();
        let mut known = HashSet::new();
        for config in (0..self.count()).map(|point| self.config(point)) {
            columns.add(&config)?;
            known.insert(config);
        }
        for &point in points.iter().filter(|&&point| point < self.count()) {
            for config in candidates.neighbours(&self.config(point))? {
                if known.len() < MAX_POINTS && known.insert(config.clone()) {
                    columns.add(&config)?;
                }
            }
        }
        Ok(Space { sampled: self.sampled, ..columns.into_space()? })
    }
}

/// All configs; `None` if there are too many or the walk was abandoned.
fn walked(candidates: &CandidateSpace) -> Result<Option<Space>, NoSpace> {
    let mut columns = Columns::default();
    let mut walk = candidates.configs();
    for count in 0.. {
        let visited = walk.visited();
        let hopeless = || walk.progress() * FASTER * (MAX_STEPS as f64) < visited as f64;
        if visited > MAX_STEPS || (visited > EARLY && hopeless()) {
            return Ok(None);
        }
        match walk.next() {
            Some(Ok(config)) if count < MAX_POINTS => columns.add(&config)?,
            Some(Err(error)) if !walk.gave_up() => return Err(error.into()),
            Some(_) => return Ok(None),
            None => break,
        }
    }
    columns.into_space().map(Some)
}
