//! One invocation to tune.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::candidates::CandidateSpace;
use crate::config::Config;
use crate::hlo::FoundLabel;
use crate::registry::{Candidate, Invocation};

use super::job::own_programs;
use super::tuner::Tuned;

/// One invocation to tune and how it was matched.
#[derive(Debug, Clone)]
pub struct PlannedInvocation {
    /// What was recorded.
    pub invocation: Arc<Invocation>,
    /// The module's labels that matched it.
    pub labels: Vec<FoundLabel>,
    /// How they were matched, one phrase.
    pub how: String,
    /// Caveats of the match, such as another device's recording.
    pub flags: Vec<String>,
    /// The space to search in addition, if it is too large to race all its configs.
    pub space: Option<Arc<CandidateSpace>>,
    /// Its share of a step's time, if a profile was given.
    pub share: Option<f64>,
}

/// Maximum number of configs of one call that are all raced; if there are more, a search picks those to race.
pub const MAX_RACED: usize = 64;

impl PlannedInvocation {
    /// A recorded invocation, independent of a module.
    pub fn new(invocation: Arc<Invocation>) -> Self {
        Self { invocation, labels: Vec::new(), how: String::new(), flags: Vec::new(), space: None, share: None }
    }

    /// The operation, whose calls have a surrogate in common.
    pub(super) fn tuned(&self) -> Tuned {
        (self.invocation.call.op_id.clone(), self.invocation.direction)
    }

    /// Bytes of its arguments; saturated if the number does not fit.
    pub(crate) fn input_bytes(&self) -> u64 {
        let bytes = self.invocation.arguments.iter().map(|argument| argument.spec.host_bytes().unwrap_or(u64::MAX));
        bytes.fold(0, u64::saturating_add)
    }

    /// The candidates to race if nothing can be searched: everything recorded, and as many configs of the space as fit.
    pub(super) fn without_search(&self) -> Invocation {
        let mut invocation = self.invocation.as_ref().clone();
        let room = MAX_RACED.saturating_sub(own_programs(&invocation).len());
        if invocation.is_lowered_on_demand() {
            let of_baseline = |candidate: &Candidate| candidate.config == self.invocation.baseline;
            invocation.candidates.sort_by_key(|candidate| !of_baseline(candidate));
            invocation.candidates.truncate(MAX_RACED);
        }
        let known: BTreeSet<&Config> = self.invocation.candidates.iter().map(|candidate| &candidate.config).collect();
        let of_space = self.space.iter().flat_map(|space| space.configs()).map_while(Result::ok);
        let added = of_space.filter(|config| !known.contains(config)).take(room);
        invocation.candidates.extend(added.map(|config| Candidate { config, program: None, not_lowered: None }));
        invocation
    }

    /// Adds the configs of a search space behind the recorded ones, without programs: for a timer that
    /// [builds them](crate::timer::TimerCapabilities::build_programs). Configs that are recorded are not added again.
    /// If there would be more than [`MAX_RACED`], the space is kept, to be searched.
    pub fn extend_from(&mut self, space: &CandidateSpace) {
        let known: BTreeSet<&Config> = self.invocation.candidates.iter().map(|candidate| &candidate.config).collect();
        let room = MAX_RACED.saturating_sub(own_programs(&self.invocation).len());
        let mut added = Vec::new();
        let mut walk = space.configs();
        while let Some(config) = walk.next() {
            match config {
                Ok(config) if known.contains(&config) => {}
                Ok(config) if added.len() < room => {
                    added.push(Candidate { config, program: None, not_lowered: None });
                }
                Err(error) if !walk.gave_up() => {
                    self.flags.push(format!("the search space ends early: {error}"));
                    break;
                }
                Ok(_) | Err(_) => {
                    self.space = Some(Arc::new(space.clone()));
                    return;
                }
            }
        }
        if !added.is_empty() {
            Arc::make_mut(&mut self.invocation).candidates.extend(added);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::registry::RecordedTarget;

    #[test]
    fn recorded_configs_come_first_and_once() {
        let config = |n: u32| serde_json::from_str::<Config>(&format!(r#"{{"block":{n}}}"#)).unwrap();
        let recorded = Candidate { config: config(2), program: None, not_lowered: Some("gpu only".into()) };
        let target = RecordedTarget::Platform("cpu".into());
        let invocation = Invocation::new(target, Call::new("op@v1", "k"), config(2)).candidates(vec![recorded]);
        let mut planned = PlannedInvocation::new(Arc::new(invocation));
        let text = r#"{"schema":1,"op":"op","parameters":{"block":[1,2,4,8]},"constraints":["block < 8"],
            "baseline":{"block":1}}"#;
        planned.extend_from(&CandidateSpace::parse("op.json", text).unwrap());
        let configs: Vec<_> = planned.invocation.candidates.iter().map(|c| c.config.to_string()).collect();
        assert_eq!(configs, [r#"{"block":2}"#, r#"{"block":1}"#, r#"{"block":4}"#]);
    }
}
