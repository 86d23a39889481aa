//! Calls that are measured in turns, a pair of processes each: the machine changes for some time, and each call meets
//! more of its states if its pairs are spread over the run.

use std::time::{Duration, Instant};

use crate::decision::ProcessQuestion;
use crate::race::{RaceError, RaceOptions, Runner};
use crate::tune::PlannedInvocation;

use super::old_and_new::{Measured, NotMeasured, OldAndNew};

/// Calls that are measured in turns: at most so many, and so many bytes of inputs, which all exist at the same time.
const MOST_CALLS: usize = 16;
const MOST_BYTES: u64 = 1 << 30;

/// The plan's calls in groups, each of which is measured in turns.
pub(super) fn groups(calls: &[PlannedInvocation]) -> Vec<&[PlannedInvocation]> {
    let (mut groups, mut rest) = (Vec::new(), calls);
    while !rest.is_empty() {
        let mut bytes = 0_u64;
        let fits = |call: &&PlannedInvocation| {
            bytes = bytes.saturating_add(call.input_bytes());
            bytes <= MOST_BYTES
        };
        let count = rest.iter().take(MOST_CALLS).take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count);
        groups.push(group);
        rest = others;
    }
    groups
}

/// How a call's turns ended.
pub(super) type Turns = Result<Measured, NotMeasured>;

/// One call in its turns.
pub(super) struct InTurns {
    programs: OldAndNew,
    /// Pairs of processes of this run, and the time that they took.
    pairs: u32,
    spent: Duration,
    last: Option<Turns>,
}

impl InTurns {
    pub(super) fn new(programs: OldAndNew) -> Self {
        Self { programs, pairs: 0, spent: Duration::ZERO, last: None }
    }

    /// Takes a turn: the outputs are compared in the first one. Returns whether another one is of use.
    pub(super) fn turn(
        &mut self,
        runner: &mut Runner<'_>,
        options: &RaceOptions,
        question: &ProcessQuestion,
    ) -> Result<bool, RaceError> {
        let begin = Instant::now();
        if self.last.is_none()
            && let Err(why) = self.programs.compare_outputs(runner, options)?
        {
            self.last = Some(Err(why));
            return Ok(false);
        }
        let measured = self.programs.add_pair(runner, options, question)?;
        self.pairs += 1;
        self.spent += begin.elapsed();
        let has_time = options.budget.is_none_or(|budget| self.spent < budget);
        let is_left = measured.is_open && has_time && self.pairs < options.most_processes(&measured.pairs);
        self.last = Some(Ok(measured));
        Ok(is_left)
    }

    /// What is known now.
    pub(super) fn end(self) -> Turns {
        self.last.unwrap_or_else(|| Err(NotMeasured::no_pair()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::array::Fill;
    use crate::call::Call;
    use crate::config::Config;
    use crate::registry::{Argument, Invocation, RecordedTarget};

    /// A call with so many MiB of inputs.
    fn call(mib: u64) -> PlannedInvocation {
        let spec = format!("u8[{}]", mib << 20).parse().unwrap();
        let argument = Argument::new("x", spec, Fill::Constant { value: 0.0 });
        let (target, baseline) = (RecordedTarget::Platform("cpu".into()), Config::new(serde_json::Map::new()));
        let invocation = Invocation::new(target, Call::new("op@v1", mib.to_string()), baseline);
        PlannedInvocation::new(Arc::new(invocation.arguments(vec![argument])))
    }

    fn sizes(calls: &[u64]) -> Vec<usize> {
        let calls: Vec<PlannedInvocation> = calls.iter().map(|mib| call(*mib)).collect();
        groups(&calls).iter().map(|group| group.len()).collect()
    }

    #[test]
    fn calls_take_turns_as_far_as_their_inputs_fit_on_the_disk() {
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1; 20]), [16, 4]);
        assert_eq!(sizes(&[600, 400, 100, 2000, 1, 1]), [2, 1, 1, 2], "one that is too large is alone");
    }
}
