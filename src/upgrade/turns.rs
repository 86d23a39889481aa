//! Calls that are measured in turns, a pair of processes each: the machine changes for some time, and each call meets
//! more of its states if its pairs are spread over the run.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::decision::ProcessQuestion;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::race::{RaceError, RaceOptions, Runner};
use crate::timer::events::{Events, Slice};
use crate::timer::{OneAtATime, Timer};
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
    /// Its blocks, where one process holds the device.
    blocks: Option<Blocks>,
    /// Pairs of processes of this run, and the time that they took.
    pairs: u32,
    spent: Duration,
    last: Option<Turns>,
    is_done: bool,
}

/// Measures one pair of processes of each call, and again of those that are open. The outputs are compared before. An
/// error ends all of them; those that are done say so.
pub(super) fn take_turns(
    setting: &TurnSetting<'_>,
    compilers: &mut Compilers<'_>,
    calls: &mut [&mut InTurns],
) -> Result<(), RaceError> {
    match compilers {
        Compilers::Together(both) => {
            let mut runner = setting.runner(&mut **both);
            while calls.iter().any(|call| !call.is_done) {
                each_open(setting, calls, |call| call.turn(&mut runner, setting))?;
            }
            Ok(())
        }
        Compilers::Apart(both) => take_turns_apart(setting, both, calls),
    }
}

/// The same where one process holds the device: each process measures the block of every call, because it takes long to
/// start one. Blocks of the two compilers alternate as new, old, old, new, so that a drift of the machine cancels.
fn take_turns_apart(
    setting: &TurnSetting<'_>,
    both: &mut OneAtATime<'_>,
    calls: &mut [&mut InTurns],
) -> Result<(), RaceError> {
    let mut runner = setting.runner(both);
    each_open(setting, calls, |call| call.begin_blocks(&mut runner, setting))?;
    let mut order = [NEW, OLD];
    while calls.iter().any(|call| !call.is_done) {
        for side in order {
            match both.alone(side) {
                Ok(timer) => {
                    let mut runner = setting.runner(timer);
                    each_open(setting, calls, |call| call.measure_block(&mut runner, side))?;
                }
                Err(failure) => each_open(setting, calls, |_| Err(RaceError::Failed(failure.clone())))?,
            }
        }
        let runner = setting.runner(both);
        each_open(setting, calls, |call| {
            call.pairs += 1;
            call.look_at_blocks(&runner, setting)
        })?;
        order.reverse();
    }
    Ok(())
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

    /// Takes a turn: the outputs are compared in the first one.
    fn turn(&mut self, runner: &mut Runner<'_>, setting: &TurnSetting<'_>) -> Result<(), RaceError> {
        if self.last.is_none()
            && let Err(why) = self.programs.compare_outputs(runner, setting.options)?
        {
            self.fail(why);
            return Ok(());
        }
        let measured = self.programs.add_pair(runner, setting.options, setting.question)?;
        self.pairs += 1;
        self.take(measured, setting.options);
        Ok(())
    }

    /// Compares the outputs, and looks at what an earlier run measured.
    fn begin_blocks(&mut self, runner: &mut Runner<'_>, setting: &TurnSetting<'_>) -> Result<(), RaceError> {
        if let Err(why) = self.programs.compare_outputs_apart(runner, setting.options)? {
            self.fail(why);
            return Ok(());
        }
        self.blocks = Some(self.programs.blocks(runner, setting.options)?);
        self.look_at_blocks(runner, setting)
    }

    fn measure_block(&mut self, runner: &mut Runner<'_>, side: usize) -> Result<(), RaceError> {
        self.blocks.as_ref().map_or(Ok(()), |blocks| blocks.measure(runner, side))
    }

    fn look_at_blocks(&mut self, runner: &Runner<'_>, setting: &TurnSetting<'_>) -> Result<(), RaceError> {
        let Some(blocks) = &self.blocks else { return Ok(()) };
        let measured = self.programs.look_at((blocks, runner), setting.options, setting.question)?;
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
