//! The races: all tuned against the baselines, then sets of calls, halved, and finally the set to prove.

use std::path::Path;
use std::time::{Duration, Instant};

use super::error::ProveError;
use super::manifest::{StepCall, StepVariants};
use super::result::{CallEffect, Effect, ProveResult, ProvenSet, SetEffect, StepVerdict};
use super::tree::Node;
use crate::compare::{CompareError, CompareOptions, CompareResult, Contestant, compare_named};
use crate::counted::{counted, listed, roughly};
use crate::race::{Deadline, Runner};
use crate::timer::events::{EventKind, Slice};

/// The race of all tuned against the baselines.
const FIRST_STAGE: &str = "prove-step";
/// Maximum number of sets in one race: their programs are all loaded at once.
const SETS_AT_ONCE: usize = 8;
/// Maximum number of sets that a race is named by.
const MOST_NAMED: usize = 3;
/// The fraction of the remaining time that one race may take.
const PART_OF_BUDGET: u32 = 3;
/// Shorter times are not told.
const WORTH_A_WORD: Duration = Duration::from_secs(10);
/// The fraction of the total time reserved for the last race.
const LAST_PART_OF_BUDGET: u32 = 10;

/// Races a step's variants: the gain of all tuned configs over the baselines, and the contribution of each call, by
/// halving. `options` apply to each race; the budget is for all races together.
///
/// A set with a significant effect is divided before one without, which may still hold calls whose contributions cancel
/// out. All intervals hold simultaneously, because each possible comparison gets an equal part of the error
/// probability.
///
/// # Errors
/// As [`compare`](crate::compare::compare), and if a program cannot be read.
pub fn prove(
    runner: &mut Runner<'_>,
    step: &StepVariants,
    options: &CompareOptions,
    scratch: &Path,
) -> Result<ProveResult, ProveError> {
    let until = Deadline::after(options.race.budget);
    // the gain, each set, and the final proof
    let comparisons = step.tree.nodes.len() + 2;
    let runner = runner.borrowed();
    let (raced, last) = ((Instant::now(), 0), None);
    let mut races = StepRaces { runner, step, options, scratch, until, comparisons, raced, last };
    let tuned = counted(step.tuned(step.whole).len(), "call");
    let first =
        RaceName { name: format!("the step, {tuned} tuned against none"), index: 0, of: 1 + step.tree.nodes.len() };
    let whole = races.race(FIRST_STAGE, &first, step.baseline, &[step.whole])?;
    let row = whole.contestants.get(1).ok_or(CompareError::TooFew(1))?;
    let effect = Effect::of_addition(row, &whole);
    let mut result = ProveResult {
        device: whole.device.clone(),
        measured_by: whole.measured_by.clone(),
        jobs: Vec::new(),
        inputs: whole.inputs.clone(),
        baseline_ns: whole.contestants.first().and_then(|first| first.median_ns),
        calls: calls(step, &effect),
        step: effect,
        sets: Vec::new(),
        proven: None,
        dump_without: Vec::new(),
        rounds_measured: 0,
        rounds_kept: 0,
        notes: Vec::new(),
    };
    result.take_note_of(&whole);
    if step.program(step.whole) == step.program(step.baseline) {
        result.step.verdict = StepVerdict::NoEffect;
        result.notes.push("the step is the same program with all calls tuned and with none".to_owned());
    } else if result.step.failure.is_none() {
        races.divide(&mut result)?;
        races.decide(&mut result)?;
    }
    Ok(result)
}

/// The calls, with what is known before sets are raced: the contribution of a single call is the whole gain.
fn calls(step: &StepVariants, whole: &Effect) -> Vec<CallEffect> {
    let tuned = step.tuned(step.whole);
    let of = |(number, call): (usize, &StepCall)| {
        let in_step = match tuned {
            _ if !tuned.contains(&number) => Effect::unmeasured(StepVerdict::PutBack),
            [_] => whole.clone(),
            _ => Effect::unmeasured(StepVerdict::NotSeparated),
        };
        CallEffect { call: call.clone(), in_step, is_proven: false }
    };
    step.calls.iter().enumerate().map(of).collect()
}

/// How long so many races take at most, if they take as long as those that ended, in words; `None` if it is not worth
/// a word.
fn at_most((elapsed, ended): (Duration, u32), races: usize, budget: Option<Duration>) -> Option<String> {
    let left = elapsed.checked_div(ended)?.saturating_mul(u32::try_from(races).unwrap_or(u32::MAX));
    let left = budget.map_or(left, |budget| left.min(budget));
    (left >= WORTH_A_WORD).then(|| format!("at most {} follow, about {}", counted(races, "race"), roughly(left)))
}

/// What a race is about, and its place among the sets that are raced.
struct RaceName {
    name: String,
    index: usize,
    of: usize,
}

/// What every race needs.
struct StepRaces<'a> {
    runner: Runner<'a>,
    step: &'a StepVariants,
    options: &'a CompareOptions,
    scratch: &'a Path,
    until: Deadline,
    /// How many comparisons share the error probability.
    comparisons: usize,
    /// When the first race began, and how many ended.
    raced: (Instant, u32),
    /// During the last race, its minimum time.
    last: Option<Duration>,
}

impl StepRaces<'_> {
    /// Races variants against one of them.
    fn race(
        &mut self,
        stage: &str,
        shown: &RaceName,
        first: usize,
        others: &[usize],
    ) -> Result<CompareResult, ProveError> {
        let scratch = tempfile::tempdir_in(self.scratch).map_err(|source| ProveError::Scratch { source })?;
        let mut contestants = vec![self.contestant(first)?];
        for &other in others {
            contestants.push(self.contestant(other)?);
        }
        // `compare` divides it among the others and the copy
        let error = (1.0 - self.options.rules.confidence) * others.len() as f64 / self.comparisons as f64;
        let left = self.until.left().map(|left| left / PART_OF_BUDGET);
        // all races have the same inputs, so only the first one reports what they need
        let tells_preflight = self.options.tells_preflight && stage == FIRST_STAGE;
        let options = CompareOptions { stage: stage.to_owned(), tells_preflight, ..self.options.clone() }
            .rules(self.options.rules.confidence(1.0 - error))
            .budget(left.map(|left| left.max(self.last.unwrap_or_default())));
        let slice = Slice::Operation { name: &shown.name, index: shown.index, of: shown.of };
        let result = compare_named(&mut self.runner, &contestants, &options, scratch.path(), slice)?;
        self.raced.1 += 1;
        Ok(result)
    }

    /// Tells how long the races of these sets, of those inside them and of the set to prove take at most.
    fn tell_left(&self, sets: &[usize]) {
        let races = self.step.tree.most_races(sets, SETS_AT_ONCE) + 1;
        let (began, ended) = self.raced;
        if let Some(left) = at_most((began.elapsed(), ended), races, self.until.left()) {
            self.runner.events.tell(EventKind::Ahead(&left));
        }
    }

    fn contestant(&self, variant: usize) -> Result<Contestant, ProveError> {
        let tuned = self.step.tuned(variant).len();
        let name = match tuned {
            0 => "the step at its baselines".to_owned(),
            _ => format!("the step with {tuned} of {} calls tuned", self.step.calls.len()),
        };
        self.step.contestant(variant, name)
    }

    /// Races sets against all tuned, from the outermost to single calls, while time is left.
    fn divide(&mut self, result: &mut ProveResult) -> Result<(), ProveError> {
        let step = self.step;
        // significant ones first, then those that could hide contributions that cancel out
        let (mut significant, mut hiding) = (step.tree.outer.clone(), Vec::new());
        loop {
            if significant.is_empty() {
                significant = std::mem::take(&mut hiding);
            }
            if significant.is_empty() {
                return Ok(());
            }
            self.tell_left(&[significant.as_slice(), &hiding].concat());
            let rest = significant.split_off(significant.len().min(SETS_AT_ONCE));
            let nodes: Vec<&Node> =
                std::mem::replace(&mut significant, rest).iter().filter_map(|&at| step.tree.nodes.get(at)).collect();
            let is_same = |node: &&Node| step.program(node.variant) == step.program(step.whole);
            let (same, others): (Vec<&Node>, Vec<&Node>) = nodes.into_iter().partition(is_same);
            same.iter().for_each(|node| result.take(node, Effect::unmeasured(StepVerdict::NoEffect)));
            hiding.extend(same.iter().flat_map(|node| &node.inner));
            if others.is_empty() {
                continue;
            }
            if self.until.is_over() {
                result.notes.push(
                    "the time was used up before every call was raced by itself; allow more with `--budget`".to_owned(),
                );
                return Ok(());
            }
            let variants: Vec<usize> = others.iter().map(|node| node.variant).collect();
            let sets = match others.len() {
                many if many > MOST_NAMED => counted(many, "set") + " of calls",
                _ => listed(others.iter().map(|node| step.name_of(&node.calls))),
            };
            let shown = RaceName {
                name: format!("put back, each alone: {sets}"),
                index: result.sets.len() + others.len(),
                of: 1 + step.tree.nodes.len(),
            };
            let race = self.race("prove-parts", &shown, step.whole, &variants)?;
            result.take_note_of(&race);
            for (node, row) in others.iter().zip(race.contestants.iter().skip(1)) {
                let effect = Effect::of_removal(row, &race);
                let is_significant = matches!(effect.verdict, StepVerdict::Gains | StepVerdict::Loses);
                if is_significant { &mut significant } else { &mut hiding }.extend(&node.inner);
                result.take(node, effect);
            }
        }
    }

    /// Takes the fastest variant proven faster than all tuned, or else all tuned, and proves it against the baselines.
    fn decide(&mut self, result: &mut ProveResult) -> Result<(), ProveError> {
        let step = self.step;
        let losers: Vec<usize> = result.losers();
        let lost = |set: &&SetEffect| set.in_step.verdict == StepVerdict::Loses;
        let speed_up = |set: &SetEffect| set.in_step.speed_up.unwrap_or(1.0);
        let all_lost = || result.sets.iter().filter(lost);
        // without the losing calls, if there is such a variant; its other contributions are closer to one
        let exact = all_lost().find(|set| set.calls == losers);
        let worst = exact.or_else(|| all_lost().min_by(|a, b| speed_up(a).total_cmp(&speed_up(b)))).cloned();
        let Some(worst) = worst else {
            if result.step.verdict == StepVerdict::Gains {
                result.prove(step.tuned(step.whole), result.step.clone());
            }
            return Ok(());
        };
        if losers.len() > 1 && worst.calls != losers {
            result.dump_without = losers;
        }
        let node = step.tree.nodes.iter().find(|node| node.calls == worst.calls);
        let Some(variant) = node.map(|node| node.variant) else { return Ok(()) };
        self.last = self.options.race.budget.map(|budget| budget / LAST_PART_OF_BUDGET);
        // separate rounds, because the earlier ones selected it
        let sets = 1 + step.tree.nodes.len();
        let tuned = step.name_of(step.tuned(variant));
        let shown = RaceName { name: format!("to be proven: {tuned} tuned against none"), index: sets, of: sets + 1 };
        let race = self.race("prove-set", &shown, step.baseline, &[variant])?;
        result.take_note_of(&race);
        let row = race.contestants.get(1).ok_or(CompareError::TooFew(1))?;
        let own = Effect::of_addition(row, &race);
        let proven = match own.verdict {
            StepVerdict::Gains => Some(own),
            // too few rounds; it follows from the earlier races
            StepVerdict::NotSeparated => result.step.without(&worst.in_step),
            _ => None,
        };
        if let Some(effect) = proven {
            result.prove(step.tuned(variant), effect);
        }
        Ok(())
    }
}

impl ProveResult {
    /// Summarises a race.
    fn take_note_of(&mut self, race: &CompareResult) {
        self.jobs.push(race.job);
        self.rounds_measured = self.rounds_measured.saturating_add(race.rounds_measured);
        self.rounds_kept = self.rounds_kept.saturating_add(race.rounds_kept);
        for note in &race.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
    }

    /// Records the contribution of a set, and of the call if it is a single one.
    fn take(&mut self, node: &Node, effect: Effect) {
        if let [call] = node.calls[..]
            && let Some(call) = self.calls.get_mut(call)
        {
            call.in_step = effect.clone();
        }
        self.sets.push(SetEffect { calls: node.calls.clone(), in_step: effect });
    }

    /// Calls that lose by themselves.
    fn losers(&self) -> Vec<usize> {
        let calls = self.calls.iter().enumerate();
        calls.filter(|(_, call)| call.in_step.verdict == StepVerdict::Loses).map(|(number, _)| number).collect()
    }

    fn prove(&mut self, calls: &[usize], effect: Effect) {
        for &call in calls {
            if let Some(call) = self.calls.get_mut(call) {
                call.is_proven = true;
            }
        }
        self.proven = Some(ProvenSet { calls: calls.to_vec(), in_step: effect });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_races_follows_from_those_that_ended() {
        let seconds = Duration::from_secs;
        assert_eq!(at_most((seconds(12), 2), 3, None).as_deref(), Some("at most 3 races follow, about 20 s"));
        assert_eq!(
            at_most((seconds(12), 2), 3, Some(seconds(13))).as_deref(),
            Some("at most 3 races follow, about 10 s")
        );
        assert_eq!(at_most((seconds(6), 2), 3, None), None, "not worth a word");
        assert_eq!(at_most((seconds(60), 0), 3, None), None, "nothing is known");
    }
}
