//! Compiling in waves: which candidates of a job are compiled next, and which are skipped.

use crate::config::Config;
use crate::core_limits::CoreLimits;
use crate::decision::first_looks;
use crate::race::{JobEvidence, JobIdentity, NextWave};
use crate::registry::Invocation;
use crate::search::{Predictions, Space, Surrogate, WaveRules};
use crate::timer::CompilerFigures;

use super::TuneOptions;

/// Up to this many programs are compiled at once: skipping some is not worth a second wave.
const FEW: usize = 8;

/// Whether so many programs are all compiled before any is measured.
pub(crate) fn are_compiled_at_once(programs: usize) -> bool {
    programs <= FEW
}

/// Minimum number of programs in a wave of one call, if several calls compile at the same time.
const LEAST_WAVE: usize = 4;

/// The waves of one job.
pub(super) struct Waves {
    pub(super) surrogate: Surrogate,
    space: Space,
    /// The candidate of each point of the surrogate's space.
    candidates: Vec<usize>,
    /// Points that are known to be good elsewhere.
    known: Vec<usize>,
    rules: WaveRules,
    usual_rounds: usize,
    /// Programs of a wave if no other call compiles.
    whole_wave: usize,
}

impl Waves {
    /// The waves of a job on its operation's surrogate; only the surrogate if everything is compiled at once.
    pub(super) fn begin(
        mut surrogate: Surrogate,
        invocation: &Invocation,
        identity: &JobIdentity,
        options: &TuneOptions,
    ) -> Result<Self, Surrogate> {
        let candidates = identity.distinct();
        if options.thorough || options.one_job_a_call || are_compiled_at_once(candidates.len()) {
            return Err(surrogate);
        }
        let config = |candidate: &usize| Some(invocation.candidates.get(*candidate)?.config.clone());
        let space = Space::new(candidates.iter().filter_map(config));
        let baseline = candidates.iter().position(|&candidate| candidate == identity.baseline);
        let (Ok(space), Some(baseline)) = (space, baseline) else { return Err(surrogate) };
        surrogate.begin(&space, baseline);
        let rules = WaveRules::new(options.wave).least_gain(options.race.rules.min_improvement);
        Ok(Self {
            surrogate,
            space,
            candidates,
            known: Vec::new(),
            rules,
            usual_rounds: options.race.usual_rounds() as usize,
            whole_wave: options.wave,
        })
    }

    /// Adds a compiler's figures for the candidates to the surrogate's features.
    pub(super) fn add_compiler_figures(
        &mut self,
        limits: Option<&CoreLimits>,
        of_candidate: impl Fn(usize) -> Option<CompilerFigures>,
    ) {
        let figures =
            |&candidate: &usize| of_candidate(candidate).map(|known| known.figures(limits)).unwrap_or_default();
        self.surrogate.add_figures(&self.candidates.iter().map(figures).collect::<Vec<_>>());
    }

    /// Adds configs that are good elsewhere, the best first, to the first wave.
    pub(super) fn know(&mut self, configs: &[Config]) {
        self.known = configs.iter().filter_map(|config| self.space.nearest(config)).collect();
    }

    /// Makes waves smaller if several calls compile at the same time: together they keep the cores busy.
    fn share(&mut self, calls: usize) {
        let wave = self.whole_wave.div_ceil(calls.max(1)).max(LEAST_WAVE.min(self.whole_wave));
        let WaveRules { first, wave, .. } = WaveRules::new(wave);
        self.rules = self.rules.first(first).wave(wave);
    }

    /// Whether the skipped candidates promise too little to be a reason to measure again.
    pub(super) fn is_enough(&self, untried_chance: f64) -> bool {
        untried_chance <= self.rules.chance
    }

    /// Predictions for the remaining candidates after these measurements.
    pub(super) fn predict(&mut self, evidence: &JobEvidence, identity: &JobIdentity) -> Predictions {
        let decided = evidence.to_decision(identity.same_as.len(), identity.baseline);
        let looks = first_looks(&decided, identity.same_as.len(), identity.baseline, self.usual_rounds);
        let rules = self.rules.noise_floor(looks.noise_floor);
        let is_observed = |candidate: usize| !evidence.is_empty() && !evidence.is_left(candidate);
        let observed = self.candidates.iter().enumerate().filter(|(_, candidate)| is_observed(**candidate));
        for (point, &candidate) in observed {
            // a compiled candidate without a time counts as failed
            let look = looks.candidates.get(candidate).copied().flatten();
            let look = look.filter(|_| !evidence.failures.contains_key(&candidate)).map(|look| {
                // another process may have disturbed a first round, and disturbances only ever add time
                let undisturbed = evidence.fastest_ratio(candidate, identity.baseline).map_or(f64::INFINITY, f64::ln);
                (look.difference.min(undisturbed), look.deviation)
            });
            self.surrogate.tell(point, look);
        }
        self.surrogate.predict(&self.known, &rules).renumbered(|point| self.candidates.get(point).copied())
    }
}

impl NextWave for Waves {
    fn next(&mut self, evidence: &JobEvidence, identity: &JobIdentity, calls: usize) -> Vec<usize> {
        self.share(calls);
        self.predict(evidence, identity).next
    }
}
