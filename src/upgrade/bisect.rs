//! The first of several environments at which the verdict on a call changes.

use serde::Serialize;

use crate::call::{Call, Direction};
use crate::measured_by::TOOL;
use crate::tune::MissedLabel;

use super::halving::{Answer, Halving, KnownRange};
use super::result::{UpgradeResult, UpgradeVerdict, UpgradedCall, name};

/// Version of the schema of a [`BisectResult`].
pub const BISECT_SCHEMA: u32 = 1;

/// Where in a list of environments the calls of a module change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BisectResult {
    /// [`BISECT_SCHEMA`].
    pub schema: u32,
    /// Name and version of this program.
    pub tool: String,
    /// The environments as they were named, the oldest first.
    pub environments: Vec<String>,
    /// The least change that matters, as a part of the time.
    pub min_difference: f64,
    /// What was compared with the first environment, in this order.
    pub comparisons: Vec<EnvironmentComparison>,
    /// The calls, in the plan's order.
    pub calls: Vec<BisectedCall>,
    /// Labels that match no recorded invocation.
    pub missed: Vec<MissedLabel>,
    /// Notes.
    pub notes: Vec<String>,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// One environment beside the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EnvironmentComparison {
    /// The place of the environment in the list, counted from 0.
    pub environment: usize,
    /// Its compiler with the version, if it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiler: Option<String>,
    /// The calls that were compared.
    pub calls: Vec<ComparedCall>,
    /// Why nothing was compared, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A call under one environment beside the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ComparedCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// The direction.
    pub direction: Direction,
    /// Whether its config holds.
    pub verdict: UpgradeVerdict,
    /// One line that says why.
    pub reason: String,
    /// The config's time over that under the first environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// Where a call changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BisectedCall {
    /// What the comparison with the first changed environment says, or else the one with the last.
    #[serde(flatten)]
    pub compared: ComparedCall,
    /// In a word.
    pub outcome: BisectOutcome,
    /// The place of the last environment at which it held.
    pub held: usize,
    /// The place of the first one after that at which it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<usize>,
}

/// How the search for a call's change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BisectOutcome {
    /// The environment that changed it is known.
    Found,
    /// It changed between two environments, and none of those between them decides it.
    Between,
    /// It holds at the last environment.
    Unchanged,
    /// Whether it holds at the last environment is open.
    Undecided,
}

impl ComparedCall {
    fn of(call: &UpgradedCall) -> Self {
        Self {
            call: call.call.clone(),
            direction: call.direction,
            verdict: call.verdict,
            reason: call.reason.clone(),
            ratio: call.change.as_ref().map(|change| change.ratio),
        }
    }

    /// `op@vN:key`, and the direction unless it is forward.
    pub fn name(&self) -> String {
        name(&self.call, self.direction)
    }

    fn answer(&self) -> Answer {
        match self.verdict {
            verdict if verdict.is_alarm() => Answer::Changed,
            UpgradeVerdict::Undecided => Answer::Undecided,
            _ => Answer::Holds,
        }
    }

    fn is_of(&self, call: &Call, direction: Direction) -> bool {
        self.call == *call && self.direction == direction
    }
}

impl BisectResult {
    /// The name of the environment at a place.
    pub fn environment(&self, place: usize) -> &str {
        self.environments.get(place).map_or("?", String::as_str)
    }
}

/// The search: it says what to compare, and takes what the comparisons say.
#[derive(Debug)]
pub struct Bisection {
    result: BisectResult,
    /// The calls as the comparison with the last environment has them; `None` before it.
    calls: Option<(Vec<ComparedCall>, Halving)>,
}

impl Bisection {
    /// Nothing is compared yet.
    pub fn new(environments: Vec<String>, min_difference: f64) -> Self {
        let result = BisectResult {
            schema: BISECT_SCHEMA,
            tool: TOOL.to_owned(),
            environments,
            min_difference,
            comparisons: Vec::new(),
            calls: Vec::new(),
            missed: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        };
        Self { result, calls: None }
    }

    /// The place of the environment to compare next with the first one: the last, and then what halves the rest. `None`
    /// at the end.
    pub fn next_environment(&self) -> Option<usize> {
        match &self.calls {
            _ if self.result.interrupted => None,
            None => self.result.environments.len().checked_sub(1).filter(|last| *last > 0),
            Some((_, search)) => search.next(),
        }
    }

    /// Whether the comparison with an environment is of use for a call.
    pub fn is_wanted(&self, environment: usize, call: &Call, direction: Direction) -> bool {
        let Some((calls, search)) = &self.calls else { return true };
        calls.iter().position(|one| one.is_of(call, direction)).is_some_and(|call| search.serves(environment, call))
    }

    /// Takes what the comparison of the first environment with another one says.
    pub fn add(&mut self, environment: usize, compared: &UpgradeResult) {
        let found: Vec<ComparedCall> = compared.calls.iter().map(ComparedCall::of).collect();
        let (calls, search) = self.calls.get_or_insert_with(|| {
            self.result.missed.clone_from(&compared.missed);
            (found.clone(), Halving::new(environment, found.len()))
        });
        for (place, call) in calls.iter().enumerate() {
            match found.iter().find(|one| one.is_of(&call.call, call.direction)) {
                Some(found) => search.tell(environment, place, found.answer()),
                // the end of the run says nothing about it
                None if compared.interrupted => {}
                None => search.tell(environment, place, Answer::Undecided),
            }
        }
        let new = compared.notes.iter().filter(|note| !self.result.notes.contains(note)).cloned().collect::<Vec<_>>();
        self.result.notes.extend(new);
        self.result.interrupted |= compared.interrupted;
        let compiler = Some(compared.new.compiler());
        self.result.comparisons.push(EnvironmentComparison { environment, compiler, calls: found, failure: None });
    }

    /// Takes that an environment cannot be compared, because of a failure.
    pub fn skip(&mut self, environment: usize, failure: String) {
        if let Some((calls, search)) = &mut self.calls {
            (0..calls.len()).for_each(|call| search.tell(environment, call, Answer::Undecided));
        }
        let failure = Some(failure);
        self.result.comparisons.push(EnvironmentComparison { environment, compiler: None, calls: Vec::new(), failure });
    }

    /// Takes that the user ended the search between two comparisons.
    pub fn interrupt(&mut self) {
        self.result.interrupted = true;
    }

    /// What is known so far.
    pub fn finish(self) -> BisectResult {
        let mut result = self.result;
        if let Some((calls, search)) = self.calls {
            let ranges = calls.into_iter().zip(&search.ranges);
            result.calls = ranges.map(|(last, range)| bisected(last, range, &result.comparisons)).collect();
        }
        result
    }
}

/// A call with what is known of it; `last` is what the comparison with the last environment says.
fn bisected(last: ComparedCall, range: &KnownRange, comparisons: &[EnvironmentComparison]) -> BisectedCall {
    let outcome = match range.changed {
        Some(changed) if changed == range.held + 1 => BisectOutcome::Found,
        Some(_) => BisectOutcome::Between,
        None if last.answer() == Answer::Holds => BisectOutcome::Unchanged,
        None => BisectOutcome::Undecided,
    };
    let first = comparisons.iter().find(|one| Some(one.environment) == range.changed);
    let first = first.and_then(|one| one.calls.iter().find(|call| call.is_of(&last.call, last.direction)).cloned());
    BisectedCall { compared: first.unwrap_or(last), outcome, held: range.held, changed: range.changed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A comparison with these operations and verdicts.
    fn compared(verdicts: &[(&str, &str)]) -> UpgradeResult {
        let side = json!({"name": "a", "device": {
            "identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}},
            "environment": {"platform_version": "cpu"},
        }});
        let calls = verdicts.iter().map(|(op_id, verdict)| {
            json!({"op_id": op_id, "call_key": "k", "direction": "forward", "verdict": verdict, "reason": "-",
                   "in_force": {"config": {}, "is_cached": false}})
        });
        let result = json!({"schema": 1, "tool": "-", "old": side, "new": side, "min_difference": 0.05,
                            "calls": calls.collect::<Vec<_>>(), "missed": [], "notes": [], "interrupted": false});
        serde_json::from_value(result).unwrap()
    }

    fn bisection() -> Bisection {
        Bisection::new(["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(), 0.05)
    }

    #[test]
    fn every_alarm_is_a_change_and_what_was_not_compared_decides_nothing() {
        let mut search = bisection();
        assert_eq!(search.next_environment(), Some(4));
        search.add(4, &compared(&[("breaks@v1", "breaks"), ("holds@v1", "holds"), ("slow@v1", "retune")]));
        assert_eq!(search.next_environment(), Some(2));
        let is_wanted = |search: &Bisection, place: usize, op_id: &str| {
            search.is_wanted(place, &Call::new(op_id, "k"), Direction::Forward)
        };
        let wanted = ["breaks@v1", "holds@v1", "slow@v1"].map(|op_id| is_wanted(&search, 2, op_id));
        assert_eq!(wanted, [true, false, true]);
        search.add(2, &compared(&[("breaks@v1", "improved"), ("slow@v1", "compiler-regressed")]));
        // one of the two next ones does not start, and the other one leaves out the call
        let mut left = Vec::new();
        while let Some(place) = search.next_environment() {
            left.push(place);
            match place {
                1 => search.add(place, &compared(&[])),
                _ => search.skip(place, "no JAX".to_owned()),
            }
        }
        left.sort_unstable();
        assert_eq!(left, [1, 3]);
        let result = search.finish();
        let found = |call: &BisectedCall| (call.outcome, call.held, call.changed, call.compared.verdict);
        let expected = [
            (BisectOutcome::Between, 2, Some(4), UpgradeVerdict::Breaks),
            (BisectOutcome::Unchanged, 4, None, UpgradeVerdict::Holds),
            (BisectOutcome::Between, 0, Some(2), UpgradeVerdict::CompilerRegressed),
        ];
        assert_eq!(result.calls.iter().map(found).collect::<Vec<_>>(), expected);
        let failed: Vec<usize> =
            result.comparisons.iter().filter(|one| one.failure.is_some()).map(|one| one.environment).collect();
        assert_eq!(failed, [3]);
    }

    #[test]
    fn an_ended_comparison_ends_the_search() {
        let mut search = bisection();
        search.add(4, &compared(&[("slow@v1", "retune"), ("slower@v1", "retune")]));
        let ended = UpgradeResult { interrupted: true, ..compared(&[("slow@v1", "holds")]) };
        search.add(2, &ended);
        assert_eq!(search.next_environment(), None);
        let result = search.finish();
        assert!(result.interrupted);
        let ranges: Vec<_> = result.calls.iter().map(|call| (call.held, call.changed)).collect();
        assert_eq!(ranges, [(2, Some(4)), (0, Some(4))], "what was measured counts");
    }
}
