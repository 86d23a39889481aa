//! Who decides: from the evidence alone, who still competes, and the verdict.

use super::evidence::JobEvidence;
use super::{JobIdentity, RaceOptions};
use crate::array::Fill;
use crate::decision::{
    ComparisonRules, Judgement, ProcessRatio, RaceState, Settled, compare, judge, process_ratios, race,
};

/// The question that a race answers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum RaceGoal {
    /// Which candidate is the best: significantly slower ones are dropped.
    #[default]
    Best,
    /// The ratio of each to the baseline: all are in every round, until each is distinguished from the baseline or the
    /// time runs out.
    EachRatio {
        /// The candidate that is the baseline's own program once more, if there is one.
        copy: Option<usize>,
        /// When a candidate is distinguished from the baseline.
        rules: ComparisonRules,
    },
    /// None: the requested number of rounds of every candidate.
    EveryRound,
}

/// What is asked of a race.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    /// The question.
    pub(crate) goal: RaceGoal,
    /// Whether exactly the requested number of rounds is measured, decided or not.
    pub(crate) is_exact: bool,
    /// Whether the baseline is in each round no more often than the others, because it is one of two processes that are
    /// compared, and a process is faster the more it runs.
    pub(crate) no_sentinels: bool,
    /// Whether nothing is decided if the baseline's outputs are not all finite.
    pub(crate) needs_finite: bool,
    /// By output, how far elements may be off beyond their type's tolerance.
    pub(crate) slack: &'a [f64],
    /// By input, how its values are drawn, if they are.
    pub(crate) fills: &'a [Option<Fill>],
    /// The relative tolerance that is recorded with the call, if one is.
    pub(crate) tolerance: Option<f64>,
    /// Whether elements within the tolerance are right, because the caller has a reference of its own.
    pub(crate) by_tolerance_alone: bool,
    /// Whether candidates that compile to one executable are one candidate.
    pub(crate) joins_executables: bool,
}

impl Terms<'_> {
    /// Whether each candidate's ratio is wanted instead of the best alone.
    pub(super) fn wants_each_ratio(&self) -> bool {
        matches!(self.goal, RaceGoal::EachRatio { .. })
    }
}

/// Decides about a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Referee<'a> {
    pub(crate) options: &'a RaceOptions,
    pub(crate) identity: &'a JobIdentity,
    pub(crate) terms: Terms<'a>,
}

impl Referee<'_> {
    fn candidates(&self) -> usize {
        self.identity.same_as.len()
    }

    /// The state of the race after all rounds, including those of earlier runs.
    pub(crate) fn race_state(&self, evidence: &JobEvidence) -> RaceState {
        let (candidates, baseline) = (self.candidates(), self.identity.baseline);
        let rounds = evidence.to_decision(candidates, baseline);
        let rules = self.options.rules_for(&rounds, baseline);
        let competing = evidence.competing(self.identity);
        let mut race_state = race(&rounds, &competing, baseline, &rules);
        if let RaceGoal::EachRatio { copy, rules } = &self.terms.goal {
            let found = compare(&rounds, candidates, &competing, (baseline, *copy), rules);
            race_state.settled = found.is_settled.then_some(Settled::Separated);
            race_state.is_in_doubt = !found.is_settled;
        }
        race_state
    }

    /// What each process that confirms says about a candidate.
    pub(crate) fn processes(&self, evidence: &JobEvidence, candidate: usize) -> Vec<ProcessRatio> {
        let (candidates, baseline) = (self.candidates(), self.identity.baseline);
        process_ratios(&evidence.confirming_to_decision(candidates, baseline), candidate, baseline)
    }

    /// The verdict. Among candidates that tie, one with fewer temporary bytes wins, and before that the incumbent.
    pub(crate) fn judge(
        &self,
        evidence: &JobEvidence,
        incumbent: Option<usize>,
        temporary_bytes: &[Option<u64>],
    ) -> Judgement {
        let (candidates, baseline) = (self.candidates(), self.identity.baseline);
        let decided = evidence.to_decision(candidates, baseline);
        let rules = self.options.rules_for(&decided, baseline);
        let competing = evidence.competing(self.identity);
        judge(&decided, candidates, &competing, baseline, incumbent, temporary_bytes, &rules)
    }
}
