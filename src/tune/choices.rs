//! The configs that a search of one call may ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::candidates::CandidateSpace;
use crate::config::Config;
use crate::registry::{Candidate, Invocation};
use crate::search::{NoSpace, Space};

use super::PlannedInvocation;
use super::job::own_programs;

/// Number of best configs whose neighbours are added when a sample grows.
const GROWN_FROM: usize = 4;
/// Number of outcomes after which it grows.
const GROWS_EVERY: usize = 32;

/// Recorded configs with programs of their own and those of the space, as points.
pub(super) struct Choices {
    pub(super) space: Space,
    pub(super) is_sample: bool,
    /// The candidates that a sample is drawn from.
    candidates: Option<Arc<CandidateSpace>>,
}

impl Choices {
    /// The recorded configs, which come first if the space lacks them, and those of the space. Configs without a
    /// program are left out, except for the baseline and for those that are lowered `on_demand`.
    pub(super) fn new(
        planned: &PlannedInvocation,
        (builds_programs, on_demand): (bool, bool),
        seed: u64,
    ) -> Result<Self, NoSpace> {
        let invocation = &planned.invocation;
        // a worker may be able to build the call's programs by its recipe but not the program of any config
        let builds_programs = builds_programs || invocation.static_arguments.contains_key("recipe");
        let recorded = own_programs(invocation).into_iter().filter_map(|index| invocation.candidates.get(index));
        let runnable = recorded.filter(|candidate| {
            let can_be_lowered = on_demand && candidate.is_open();
            let has_program = builds_programs || candidate.program.is_some() || can_be_lowered;
            has_program || candidate.config == invocation.baseline
        });
        let recorded = runnable.map(|candidate| candidate.config.clone());
        let Some(candidates) = &planned.space else {
            return Ok(Self { space: Space::new(recorded)?, is_sample: false, candidates: None });
        };
        let space = Space::of_candidates(candidates, seed)?;
        let is_sample = space.is_sample();
        let missing: Vec<Config> = recorded.filter(|config| space.find(config).is_none()).collect();
        // a config that shares another one's program would be tried twice
        let doubles = doubles(invocation);
        let space = if missing.is_empty() && doubles.is_empty() {
            space
        } else {
            let others = (0..space.count()).map(|point| space.config(point));
            Space::new(missing.into_iter().chain(others.filter(|config| !doubles.contains(config))))?
        };
        Ok(Self { space, is_sample, candidates: is_sample.then(|| Arc::clone(candidates)) })
    }

    /// All of them.
    pub(super) fn configs(&self) -> impl Iterator<Item = Config> + '_ {
        (0..self.space.count()).map(|point| self.space.config(point))
    }

    /// Whether a sample is to [grow](Self::grow) after this many outcomes.
    pub(super) fn grows_after(&self, outcomes: usize) -> bool {
        self.candidates.is_some() && outcomes > 0 && outcomes.is_multiple_of(GROWS_EVERY)
    }

    /// Adds the configs next to the best ones, those given first. Points keep their numbers.
    pub(super) fn grow(&mut self, best: &[usize]) {
        let Some(candidates) = &self.candidates else { return };
        let best = best.get(..GROWN_FROM.min(best.len())).unwrap_or_default();
        // one that cannot grow stays as it is
        if let Ok(space) = self.space.with_neighbours(candidates, best) {
            self.space = space;
        }
    }
}

/// Recorded configs whose programs are those of others.
fn doubles(invocation: &Invocation) -> BTreeSet<Config> {
    let own: BTreeSet<usize> = own_programs(invocation).into_iter().collect();
    let all = invocation.candidates.iter().enumerate();
    all.filter(|(index, _)| !own.contains(index)).map(|(_, candidate)| candidate.config.clone()).collect()
}

/// The same call with these candidates alone, as recorded if they are.
pub(crate) fn only(invocation: &Invocation, configs: impl IntoIterator<Item = Config>) -> Invocation {
    let candidate = |config: Config| {
        let recorded = invocation.candidates.iter().find(|candidate| candidate.config == config);
        recorded.cloned().unwrap_or(Candidate { config, program: None, not_lowered: None })
    };
    Invocation { candidates: configs.into_iter().map(candidate).collect(), ..without_candidates(invocation) }
}

/// A clone without the part that may be large.
fn without_candidates(invocation: &Invocation) -> Invocation {
    Invocation {
        target: invocation.target.clone(),
        call: invocation.call.clone(),
        batch: invocation.batch.clone(),
        direction: invocation.direction,
        arguments: invocation.arguments.clone(),
        distribution: invocation.distribution.clone(),
        other_distributions: invocation.other_distributions.clone(),
        static_arguments: invocation.static_arguments.clone(),
        tolerance: invocation.tolerance,
        baseline: invocation.baseline.clone(),
        candidates: Vec::new(),
        recorded_on: invocation.recorded_on.clone(),
        recorded_at: invocation.recorded_at,
        recorder: invocation.recorder.clone(),
    }
}
