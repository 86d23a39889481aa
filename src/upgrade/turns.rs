//! Calls that are measured in turns: a pair of fresh processes measures all of them, and the next pair those that are
//! open. So processes are started once for all calls, and each call meets more of the states of a machine that changes.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::counted::counted;
use crate::decision::ProcessQuestion;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::race::{RaceError, RaceOptions, Runner};
use crate::timer::Timer;
use crate::timer::events::{EventKind, Events, Slice};
use crate::tune::PlannedInvocation;

use super::blocks::Blocks;
use super::compilers::{Compilers, NEW, OLD};
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

/// What all turns of a run have in common.
pub(super) struct TurnSetting<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) cancel: &'a AtomicBool,
    pub(super) events: &'a Events,
    pub(super) options: &'a RaceOptions,
    pub(super) question: &'a ProcessQuestion,
}

impl TurnSetting<'_> {
    fn runner<'r>(&'r self, timer: &'r mut dyn Timer) -> Runner<'r> {
        Runner::new(timer, self.ledger, self.cancel, self.events)
    }
}

/// One call in its turns.
pub(super) struct InTurns {
    name: String,
    programs: OldAndNew,
    /// How processes measure them, once the outputs are compared.
    blocks: Option<Blocks>,
    /// Pairs of processes of this run, and the time that they took.
    pairs: u32,
    spent: Duration,
    last: Option<Turns>,
    is_done: bool,
}

/// Measures all calls in one pair of fresh processes, and those that are open in the next one. The outputs are compared
/// before. An error ends all of them; those that are done say so.
pub(super) fn take_turns(
    setting: &TurnSetting<'_>,
    compilers: &mut Compilers<'_>,
    calls: &mut [&mut InTurns],
) -> Result<(), RaceError> {
    let are_apart = compilers.are_apart();
    let mut runner = setting.runner(compilers.as_one());
    each_open(setting, calls, |call| call.begin(&mut runner, setting, are_apart))?;
    // blocks alternate as new, old, old, new, so that a drift of the machine cancels
    let mut order = [NEW, OLD];
    for pair in 1.. {
        let open = calls.iter().filter(|call| !call.is_done).count();
        if open == 0 {
            break;
        }
        let open = counted(open, "call");
        setting.events.tell(EventKind::Ahead(&format!("pair {pair} of fresh processes measures {open}")));
        match compilers {
            Compilers::Together(both) => {
                let started = both.restart(&[]).map(|()| &mut **both as &mut dyn Timer);
                in_process(setting, started, calls, NEW)?;
            }
            Compilers::Apart(both) => {
                for side in order {
                    in_process(setting, both.alone(side), calls, side)?;
                }
            }
        }
        each_open(setting, calls, |call| {
            call.pairs += 1;
            call.look(setting)
        })?;
        order.reverse();
    }
    Ok(())
}

/// Lets each open call measure in a fresh process. If none starts, no call can be measured.
fn in_process(
    setting: &TurnSetting<'_>,
    started: Result<&mut dyn Timer, Failure>,
    calls: &mut [&mut InTurns],
    side: usize,
) -> Result<(), RaceError> {
    match started {
        Ok(timer) => {
            let mut runner = setting.runner(timer);
            each_open(setting, calls, |call| call.measure(&mut runner, side))
        }
        Err(failure) => each_open(setting, calls, |_| Err(RaceError::Failed(failure.clone()))),
    }
}

/// Does something for each open call. A failure of one ends that call.
fn each_open(
    setting: &TurnSetting<'_>,
    calls: &mut [&mut InTurns],
    mut work: impl FnMut(&mut InTurns) -> Result<(), RaceError>,
) -> Result<(), RaceError> {
    let of = calls.len();
    for (index, call) in calls.iter_mut().enumerate().filter(|(_, call)| !call.is_done) {
        let name = format!("{}, old beside new", call.name);
        let _slice = setting.events.open(Slice::Operation { name: &name, index, of });
        let begin = Instant::now();
        let done = work(call);
        call.spent += begin.elapsed();
        match done {
            Ok(()) => {}
            Err(error @ (RaceError::Interrupted | RaceError::Fatal(_))) => return Err(error),
            Err(RaceError::Failed(failure)) => call.fail(NotMeasured::Unknown(failure)),
            Err(RaceError::Inputs(error)) => {
                call.fail(NotMeasured::Unknown(Failure::new(FailureKind::Device, error.to_string())));
            }
        }
    }
    Ok(())
}

impl InTurns {
    pub(super) fn new(name: String, programs: OldAndNew) -> Self {
        let (pairs, spent) = (0, Duration::ZERO);
        Self { name, programs, blocks: None, pairs, spent, last: None, is_done: false }
    }

    /// Whether nothing is open.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// What is known now.
    pub(super) fn end(self) -> Turns {
        self.last.unwrap_or_else(|| Err(NotMeasured::no_pair()))
    }

    fn fail(&mut self, why: NotMeasured) {
        (self.last, self.is_done) = (Some(Err(why)), true);
    }

    /// Compares the outputs, and looks at what an earlier run measured.
    fn begin(&mut self, runner: &mut Runner<'_>, setting: &TurnSetting<'_>, are_apart: bool) -> Result<(), RaceError> {
        match self.programs.begin(runner, setting.options, are_apart)? {
            Ok(blocks) => {
                self.blocks = Some(blocks);
                self.look(setting)
            }
            Err(why) => {
                self.fail(why);
                Ok(())
            }
        }
    }

    fn measure(&mut self, runner: &mut Runner<'_>, side: usize) -> Result<(), RaceError> {
        self.blocks.as_ref().map_or(Ok(()), |blocks| blocks.measure(runner, side))
    }

    fn look(&mut self, setting: &TurnSetting<'_>) -> Result<(), RaceError> {
        let Some(blocks) = &self.blocks else { return Ok(()) };
        let measured = self.programs.look_at((blocks, setting.ledger), setting.options, setting.question)?;
        self.take(measured, setting.options);
        Ok(())
    }

    fn take(&mut self, measured: Measured, options: &RaceOptions) {
        let has_time = options.budget.is_none_or(|budget| self.spent < budget);
        self.is_done = !measured.is_open || !has_time || self.pairs >= options.most_processes(&measured.pairs);
        self.last = Some(Ok(measured));
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
