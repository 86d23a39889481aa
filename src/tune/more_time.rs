//! Advice on how many more rounds would decide a race that ran out of time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decision::{DecisionRules, Judgement};
use crate::race::JobEvidence;

/// The maximum number of rounds that is suggested.
const MOST: f64 = 100_000.0;

/// The cost of distinguishing the configs of a tie set by the minimum improvement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MoreTime {
    /// Rounds in all.
    pub rounds: u32,
    /// Time for the missing ones, each as long as the last round, nanoseconds.
    pub time_ns: u64,
    /// The relative difference that they would detect: 0.01 is one per cent.
    pub resolution: f64,
}

impl MoreTime {
    /// The missing rounds, if an undecided race left a tie set. The scatter of a median over n rounds falls with √n.
    pub(super) fn of(judgement: &Judgement, evidence: &JobEvidence, rules: &DecisionRules) -> Option<Self> {
        let race_state = &judgement.race_state;
        let wanted = rules.min_improvement.max(rules.resolution);
        let is_open = race_state.settled.is_none() && judgement.tie_set().len() > 1;
        if !is_open || wanted <= 0.0 || race_state.resolution <= wanted {
            return None;
        }
        let needed = (race_state.rounds as f64 * (race_state.resolution / wanted).powi(2)).ceil();
        let missing = needed - race_state.rounds as f64;
        let time_ns = (missing * evidence.last_round_ns()? as f64) as u64;
        (needed <= MOST && missing >= 1.0).then_some(Self { rounds: needed as u32, time_ns, resolution: wanted })
    }
}

impl fmt::Display for MoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, time_ns, resolution } = *self;
        let (seconds, percent) = (time_ns as f64 / 1e9, 100.0 * resolution);
        write!(f, "`--rounds {rounds}`, about {seconds:.1} s more, would detect differences of {percent:.1}%")
    }
}
