//! One config beside the baseline: what a search is told of it, measured only where the sample log does not say.

use crate::decision::{DecisionRules, Round, Standing, paired_ratios, race};
use crate::registry::Invocation;
use crate::samples::Record;
use crate::search::Outcome;
use crate::stats::median;
use crate::timer::Failure;

use super::job::{JobIdentity, Workplace};
use super::measure::Ended;
use super::rounds::JobRounds;
use super::{Autotuner, Event, Spent, TuneOptions};

/// What a config of a job of two did.
pub(super) struct Tried {
    pub(super) outcome: Outcome,
    /// Whether it was measured for that.
    pub(super) is_new: bool,
    /// The kind of its failure and why, where it failed.
    pub(super) failure: Option<(String, String)>,
}

/// A job of two over all times that a search asks for it.
#[derive(Default)]
pub(super) struct Pair {
    rounds: Option<JobRounds>,
    /// How often it was asked for.
    asked: u32,
}

impl Autotuner<'_, '_> {
    /// Tries the second candidate of an invocation of two, whose first is the baseline. The `n`-th time it is told its
    /// `n`-th rounds, so that a strategy which asks again learns how a config's times scatter, in a resumed run too.
    pub(super) fn try_pair(
        &mut self,
        invocation: &Invocation,
        workplace: &Workplace,
        pair: &mut Pair,
    ) -> Result<Tried, Ended> {
        let identity = JobIdentity::new(invocation, &*self.timer, self.options.cache_state)
            .map_err(|reason| Ended::Failed(Failure::new(crate::timer::FailureKind::Protocol, reason)))?;
        let each = self.options.search.rounds.max(1);
        let before = pair.asked.saturating_mul(each);
        pair.asked += 1;
        let wanted = before.saturating_add(each);
        let is_first = pair.rounds.is_none();
        let mut is_known = false;
        let mut rounds = match pair.rounds.take() {
            Some(rounds) => rounds,
            None if self.options.force => JobRounds::default(),
            None => {
                let history = self.ledger.history(identity.digest)?;
                is_known = history.job.is_some();
                JobRounds::from_history(history)
            }
        };
        // a race ends where it is settled and drops what is slower; here each config has as many rounds as any other, but for
        // those that take a multiple of the baseline's time
        let rules = DecisionRules { min_rounds: usize::MAX, confidence: 1.0, ..self.options.rules };
        let options = TuneOptions { rounds: wanted, budget: None, rules, ..self.options.clone() };
        let wants_more = {
            let (_, standing) = standing(&rounds, &identity, &options.rules);
            standing.contenders.len() > 1 && standing.rounds < wanted as usize
        };
        if wants_more {
            if is_first && !is_known {
                self.ledger.append(&Record::Job(Box::new(self.job_record(invocation, &identity))))?;
            }
            // what is measured here is counted as searching
            let mut spent = Spent::default();
            let mut is_told =
                |event: &Event<'_>| matches!(event, Event::Failed { .. } | Event::Restarted { .. } | Event::Note(_));
            let of = (invocation, &identity);
            self.measure_at(workplace, &options, &mut is_told, of, &mut rounds, &mut spent)?;
        }
        let (decided, standing) = standing(&rounds, &identity, &options.rules);
        let (baseline, config) = (identity.baseline, 1 - identity.baseline.min(1));
        let failure = rounds.failures.get(&config).map(|failure| (failure.kind.to_string(), failure.message.clone()));
        if let Some(failure) = rounds.failures.get(&baseline) {
            let message = format!("the baseline failed: {}; `--force` tries again", failure.message);
            return Err(Ended::Failed(Failure::new(failure.kind, message)));
        }
        pair.rounds = Some(rounds);
        if failure.is_some() {
            return Ok(Tried { outcome: Outcome::Failed, is_new: wants_more, failure });
        }
        let counted: Vec<&Round> = decided
            .iter()
            .enumerate()
            .filter(|(index, _)| !standing.disturbance.set_aside.contains(index))
            .map(|(_, round)| round)
            .collect();
        if counted.iter().all(|round| round.sample_ns(baseline).is_none()) {
            let message = "the baseline gave no usable time: zero, negative or none at all".to_owned();
            return Err(Ended::Failed(Failure::new(crate::timer::FailureKind::Execute, message)));
        }
        let ratios = paired_ratios(counted.iter().copied(), config, baseline);
        let own = ratios.get((before as usize).min(ratios.len())..(wanted as usize).min(ratios.len()));
        let ratio = own.and_then(median).or_else(|| median(&ratios));
        let outcome = ratio.map_or(Outcome::Failed, Outcome::of);
        let failure = (outcome == Outcome::Failed)
            .then(|| ("no-time".to_owned(), "its samples are no times: zero, negative or none".to_owned()));
        Ok(Tried { outcome, is_new: wants_more, failure })
    }
}

fn standing(rounds: &JobRounds, identity: &JobIdentity, rules: &DecisionRules) -> (Vec<Round>, Standing) {
    let decided = rounds.to_decision(identity.same_as.len(), identity.baseline);
    let standing = race(&decided, &rounds.competing(identity), identity.baseline, rules);
    (decided, standing)
}
