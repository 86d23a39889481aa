//! One set of options for all modules of a process, because `XLA_FLAGS` apply to everything that it compiles.
//!
//! Modules are searched in their order. The next module first tries the sets that won on an earlier one, and is
//! searched only if none of them wins. All sets found, and all of them together, then race on every module in separate
//! rounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::entry::{DecidedModule, KnownDecision, beside_itself, known};
use super::failed::{as_known, forget_failure, known_failure, note_failure};
use super::module::{OptionModule, OptionTuneError, call, hash_choices, not_cached, not_of_one_program};
use super::race::{Rules, VariantRaces, counted};
use super::rescue::rescuers;
use super::rows::judged_by;
use super::settle::{LOOKS, tune_compiler_options};
use super::shared_sets::{losses, variants_of, with_all_together, without};
use super::shared_verdict::{OnModule, decide_shared};
use super::variant::OptionVariant;
use super::verdict::{FinalVerdict, Finalist, decide};
use crate::cache::{CacheKey, Entry};
use crate::call::Direction;
use crate::candidates::OptionSet;
use crate::counted::listed;
use crate::decision::DecisionRules;
use crate::digest::FieldHasher;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::measure::MeasureError;
use crate::measured_by::MachineLoad;
use crate::race::{CandidateResult, CandidateTimes, Deadline, RaceError, RaceOptions, Raced, Runner};
use crate::timer::Timer;
use crate::timer::events::{Events, Slice};
use crate::tune::{
    OperationResult, Status, Tally, TuneError, ended_by_user, fill_from_entry, rounds_measured, time_breakdown,
};

/// Without a budget, the last rounds of all modules share this, or a third of the time spent before if that is longer.
const LEAST_LAST: Duration = Duration::from_secs(10);

/// The race whose rounds no search has seen.
const LAST_STAGE: &str = "shared";

/// One module of a process.
#[derive(Debug, Clone)]
pub struct SharedModule {
    /// The user's name for it.
    pub name: String,
    /// The module. All modules of a process have the same base and choices.
    pub module: OptionModule,
    /// Its share of the process's time; equal shares if nothing is known.
    pub weight: f64,
}

impl SharedModule {
    /// A module with the same weight as any other.
    pub fn new(name: impl Into<String>, module: OptionModule) -> Self {
        Self { name: name.into(), module, weight: 1.0 }
    }
}

/// The result of all modules.
#[derive(Debug)]
pub struct SharedOptions {
    /// One result per module.
    pub operations: Vec<OperationResult>,
    /// The entries that were committed or found.
    pub entries: Vec<(CacheKey, Arc<Entry>)>,
    /// The set for all of them, without the base; `None` if the base stays.
    pub set: Option<OptionSet>,
    /// One line that says why.
    pub reason: String,
}

/// Finds and commits one set of options that loses on no module and saves the most in total.
///
/// # Errors
/// If the inputs of a module cannot be made, or a store fails.
pub fn tune_shared_options(
    runner: &mut Runner<'_>,
    modules: &[SharedModule],
    options: &RaceOptions,
) -> Result<SharedOptions, OptionTuneError> {
    let until = Deadline::after(options.budget);
    let began = Instant::now();
    let notes = Vec::new();
    let of_modules = modules.iter().map(|_| Tally::of(runner.events)).collect();
    let runner = runner.borrowed();
    let mut shared = SharedSearch { runner, modules, options, of_modules, until, began, notes };
    match shared.run() {
        Ok(shared) => Ok(shared),
        Err(RaceError::Fatal(error)) => Err(error.into()),
        Err(RaceError::Inputs(error)) => Err(error.into()),
        Err(RaceError::Failed(failure)) => Ok(shared.without_a_set(Status::Failed, failure.to_string())),
        Err(RaceError::Interrupted) => {
            let rounds = shared.of_modules.iter().map(|(_, tally)| rounds_measured(tally)).sum();
            Ok(shared.without_a_set(Status::Interrupted, ended_by_user(rounds).to_owned()))
        }
    }
}

struct SharedSearch<'a> {
    runner: Runner<'a>,
    modules: &'a [SharedModule],
    options: &'a RaceOptions,
    /// For each module the events of its races, and what these add up to.
    of_modules: Vec<(Events, Arc<Mutex<Tally>>)>,
    until: Deadline,
    began: Instant,
    /// The notes on the modules' entries in force, by the module's place.
    notes: Vec<(usize, String)>,
}

/// The last rounds of a module.
struct LastRounds {
    raced: Raced,
    on: OnModule,
}

impl SharedSearch<'_> {
    fn run(&mut self) -> Result<SharedOptions, RaceError> {
        let search = self.search()?;
        if let Some(found) = self.known(&search)? {
            return Ok(found);
        }
        // a module whose default does not run takes no part in the decision and does not end the run for the others
        let mut failed = BTreeMap::new();
        let sets = self.find_sets(&mut failed)?;
        let last = self.last_of_all(&sets, &mut failed)?;
        for (place, shared) in self.modules.iter().enumerate() {
            if !failed.contains_key(&place) {
                forget_failure(self.kept(), self.options, &search, &shared.module)?;
            }
        }
        let mut all = self.conclude(&search, &sets, last)?;
        self.note_failed(&failed, &search, &mut all)?;
        for (place, note) in self.notes.drain(..) {
            if let Some(operation) = all.operations.get_mut(place) {
                operation.flags.push(note);
            }
        }
        all.reason.push_str(&self.without_modules(failed.keys().copied()));
        Ok(all)
    }

    /// What is known, and where it is kept.
    fn kept(&self) -> (&dyn Timer, &Ledger) {
        (&*self.runner.timer, self.runner.ledger)
    }

    /// The sets that win on a module, each alone and all together, as far as they are compatible.
    fn find_sets(&mut self, failed: &mut BTreeMap<usize, ModuleFault>) -> Result<Vec<OptionVariant>, RaceError> {
        let mut sets: Vec<OptionVariant> = Vec::new();
        for (place, shared) in self.modules.iter().enumerate() {
            if !sets.is_empty() && self.any_wins(place, &shared.module, &sets)? {
                continue;
            }
            match self.search_alone(shared, place) {
                Ok(found) => sets.extend(found.filter(|found| sets.iter().all(|known| known.config != found.config))),
                Err(ended) => drop(failed.insert(place, of_module(ended)?)),
            }
        }
        // also without a set, because the entry tells the next run
        Ok(match self.modules.first() {
            Some(first) => with_all_together(sets, &variants_of(&first.module)),
            None => sets,
        })
    }

    /// The last rounds of every module that runs.
    fn last_of_all(
        &mut self,
        sets: &[OptionVariant],
        failed: &mut BTreeMap<usize, ModuleFault>,
    ) -> Result<BTreeMap<usize, LastRounds>, RaceError> {
        let mut last = BTreeMap::new();
        for (place, shared) in self.modules.iter().enumerate() {
            if failed.contains_key(&place) {
                continue;
            }
            let (name, events) = (format!("all sets: {}", shared.name), self.events(place));
            let _slice = events.open(Slice::Operation { name: &name, index: place, of: self.modules.len() });
            match self.last(place, shared, sets) {
                Ok(found) => drop(last.insert(place, found)),
                Err(ended) => drop(failed.insert(place, of_module(ended)?)),
            }
        }
        Ok(last)
    }

    /// Writes why modules failed into their results, and the failures of programs into the log.
    fn note_failed(
        &self,
        failed: &BTreeMap<usize, ModuleFault>,
        search: &str,
        all: &mut SharedOptions,
    ) -> Result<(), RaceError> {
        for (&place, why) in failed {
            let Some((shared, operation)) = self.modules.get(place).zip(all.operations.get_mut(place)) else {
                continue;
            };
            operation.status = Status::Failed;
            match why {
                ModuleFault::Program(failure) => {
                    operation.reason = failure.to_string();
                    operation.failure = Some(failure.clone());
                    note_failure(self.kept(), self.options, search, &shared.module, failure)?;
                }
                ModuleFault::Inputs(error) => operation.reason = error.to_string(),
            }
        }
        Ok(())
    }

    /// The end of a reason, which names the modules that do not run.
    fn without_modules(&self, failed: impl Iterator<Item = usize>) -> String {
        let names: Vec<_> = failed.filter_map(|place| Some(format!("`{}`", self.modules.get(place)?.name))).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("; without {}, which does not run as it is", listed(names.into_iter())),
        }
    }

    /// Digest of everything that the decision follows from, except the samples.
    fn search(&self) -> Result<String, RaceError> {
        let mut hasher = FieldHasher::new("shared compiler options, 2");
        hasher.field(&self.options.rules.min_improvement.to_le_bytes());
        for SharedModule { module, weight, .. } in self.modules {
            hasher.field(module.program.identity().as_bytes()).field(&weight.to_le_bytes());
            let inputs = module.inputs.digest()?;
            hasher.field(module.base.to_config().as_str().as_bytes()).field(inputs.as_bytes());
            hash_choices(&module.choices, &mut hasher);
        }
        Ok(hasher.finish().to_string())
    }

    /// The decision of an earlier run, if every module with a key has an entry of it or did not run.
    fn known(&mut self, search: &str) -> Result<Option<SharedOptions>, RaceError> {
        let mut found = self.without_a_set(Status::Cached, "already known; nothing was measured".to_owned());
        let mut failed = Vec::new();
        for (place, (shared, operation)) in self.modules.iter().zip(&mut found.operations).enumerate() {
            if let Some(failure) = known_failure(self.kept(), self.options, search, &shared.module)? {
                operation.status = Status::Failed;
                operation.reason = as_known(&failure);
                operation.failure = Some(failure);
                failed.push(place);
                continue;
            }
            if shared.module.key.is_err() {
                continue;
            }
            let key = self.key(&shared.module);
            let asked = (search, shared.module.program.meaning());
            let entry = match known(self.kept(), self.options, &key, asked)? {
                KnownDecision::Entry(entry) => entry,
                KnownDecision::No(note) => {
                    self.notes.extend(note.map(|note| (place, note)));
                    return Ok(None);
                }
            };
            fill_from_entry(operation, &entry);
            let set = OptionSet::from_config(&entry.config).ok();
            found.set = set.map(|set| without(&set, &shared.module.base)).filter(|set| !set.is_empty());
            found.entries.push((key, entry));
        }
        found.reason.push_str(&self.without_modules(failed.iter().copied()));
        let is_known = !found.entries.is_empty() || (failed.len() == self.modules.len() && !failed.is_empty());
        Ok(is_known.then_some(found))
    }

    /// Whether one of the sets wins on a module.
    fn any_wins(&mut self, place: usize, module: &OptionModule, sets: &[OptionVariant]) -> Result<bool, RaceError> {
        let rules = self.options.rules;
        let rounds = LOOKS.first().copied().unwrap_or(1);
        match self.on_module((place, module), |races| race(races, module, sets, "tried first", rounds)) {
            Ok(raced) => Ok(verdict(&raced, sets.len(), &rules).winner.is_some()),
            // its own search reports why, or rescues it
            Err(RaceError::Failed(_)) => Ok(false),
            Err(ended) => Err(ended),
        }
    }

    /// What a search of one module finds.
    fn search_alone(&mut self, shared: &SharedModule, place: usize) -> Result<Option<OptionVariant>, RaceError> {
        let without_key = OptionModule { key: Err("one set is for all modules".to_owned()), ..shared.module.clone() };
        // half of the time is reserved for the last rounds
        let left = u32::try_from(2 * (self.modules.len() - place)).unwrap_or(u32::MAX);
        let budget = self.until.left().map(|time| time / left);
        let options = self.options.clone().budget(budget);
        let events = self.events(place);
        let tuned = tune_compiler_options(&mut self.runner.telling(&events), &without_key, &options);
        let operation = tuned.map_err(|error| match error {
            OptionTuneError::Inputs(error) => RaceError::Inputs(error),
            OptionTuneError::Fatal(error) => error.into(),
        })?;
        let operation = operation.operation;
        if operation.status == Status::Interrupted {
            return Err(RaceError::Interrupted);
        }
        if let Some(failure) = operation.failure {
            return Err(RaceError::Failed(failure));
        }
        let best = operation.best.filter(|_| operation.status == Status::Tuned);
        Ok(best.and_then(|best| variants_of(&shared.module).of(&best.config)))
    }

    /// Does something with the races of one module.
    fn on_module<T>(
        &mut self,
        (place, module): (usize, &OptionModule),
        work: impl FnOnce(&mut VariantRaces<'_>) -> Result<T, RaceError>,
    ) -> Result<T, RaceError> {
        let events = self.events(place);
        let scratch =
            tempfile::tempdir().map_err(|source| TuneError::Scratch { path: std::env::temp_dir(), source })?;
        let program = module.program.write(scratch.path(), "program")?;
        let (of_module, place) = ((call(program.program.digest), &program), (scratch.path(), self.until));
        let mut races = VariantRaces::new(self.runner.telling(&events), self.options, of_module, module, place);
        let variants = variants_of(module);
        let signature = races.signature(&variants.base(), &rescuers(&variants.singles(), module))?;
        races.make_inputs(module, &signature)?;
        work(&mut races)
    }

    /// Races all sets on a module, in rounds that no search has seen.
    fn last(&mut self, place: usize, shared: &SharedModule, sets: &[OptionVariant]) -> Result<LastRounds, RaceError> {
        let begin = Instant::now();
        let allowed = LEAST_LAST.max(self.began.elapsed() / 3) / u32::try_from(self.modules.len()).unwrap_or(1).max(1);
        // the error probability does not grow with the number of modules
        let (rules, until) = (self.options.rules, self.until);
        let confidence = 1.0 - (1.0 - rules.confidence) / self.modules.len().max(1) as f64;
        let for_all = rules.confidence(confidence);
        self.on_module((place, &shared.module), |races| {
            let mut last = None;
            for rounds in LOOKS {
                let raced = race(races, &shared.module, sets, LAST_STAGE, rounds)?;
                let copy_bound = verdict(&raced, 0, &rules).copy_bound;
                let ratios = verdict(&raced, sets.len(), &for_all).ratios;
                let of = |set: usize| ratios.iter().find(|(one, ..)| one.candidate == set + 2);
                let ratios =
                    (0..sets.len()).map(|set| of(set).map(|(_, ratio, interval)| (*ratio, *interval))).collect();
                let on = OnModule { weight: shared.weight, copy_bound, ratios };
                let is_last = on.is_settled() || until.is_over() || (!until.is_set() && begin.elapsed() > allowed);
                last = Some(LastRounds { raced, on });
                if is_last {
                    break;
                }
            }
            let mut last = last.ok_or(RaceError::Interrupted)?;
            confirm_wins(races, &shared.module, sets, (&mut last.on, rules.min_improvement))?;
            Ok(last)
        })
    }

    /// Makes entries from the last rounds.
    fn conclude(
        &mut self,
        search: &str,
        sets: &[OptionVariant],
        last: BTreeMap<usize, LastRounds>,
    ) -> Result<SharedOptions, RaceError> {
        let sizes: Vec<usize> = sets.iter().map(|set| set.set.iter().count()).collect();
        let on: Vec<OnModule> = last.values().map(|last| last.on.clone()).collect();
        let names: Vec<String> = last.keys().filter_map(|&place| Some(self.modules.get(place)?.name.clone())).collect();
        let verdict = decide_shared(&on, &sizes, self.options.rules.min_improvement);
        let winner = verdict.winner.and_then(|winner| Some((winner, sets.get(winner)?)));
        let (status, reason) = match winner {
            Some((_, set)) => {
                let set = set.config.to_brief();
                (Status::Tuned, format!("{set} is slower on no module, and saves the most in all"))
            }
            None => (Status::BaselineKept, losses(sets, &verdict.losses, &names)),
        };
        let process: Vec<&str> = winner.iter().flat_map(|(_, set)| set.process.keys().map(String::as_str)).collect();
        let mut all = self.without_a_set(status, reason);
        for (place, LastRounds { raced, on }) in last {
            let Some((shared, operation)) = self.modules.get(place).zip(all.operations.get_mut(place)) else {
                continue;
            };
            operation.candidates = rows_of(&raced, &on, winner.map_or(0, |(winner, _)| winner + 2));
            operation.resolution = Some(on.copy_bound).filter(|bound| bound.is_finite());
            let Some(of_base) = raced.rows.first().and_then(|row| row.times().copied()) else { continue };
            let base = shared.module.base.to_config();
            let of_base = beside_itself(of_base);
            let of_winner = winner.and_then(|(winner, set)| {
                let (ratio, interval) = on.ratios.get(winner).copied().flatten()?;
                let times = raced.rows.get(winner + 2)?.times()?;
                Some((set.config.clone(), CandidateTimes { ratio, interval, ..*times }))
            });
            let (config, times) = of_winner.unwrap_or_else(|| (base.clone(), of_base));
            let (candidates, program) = (&operation.candidates, shared.module.program.meaning());
            let (search, job) = (search.to_owned(), Some(raced.digest));
            let tied = Vec::new();
            let (processes, load) = (0, MachineLoad::of(raced.judgement.race_state.disturbance.is_contended));
            operation.load = load.clone();
            let decided =
                DecidedModule { config, times, tied, base, of_base, candidates, processes, load, job, search, program };
            let entry = Arc::new(decided.into_entry(&*self.runner.timer, self.options));
            fill_from_entry(operation, &entry);
            if shared.module.key.is_ok() && !process.is_empty() {
                operation.flags.push(not_of_one_program(&process));
            } else if shared.module.key.is_ok() {
                let key = self.key(&shared.module);
                self.runner.ledger.commit(job, &key, &entry)?;
                all.entries.push((key, entry));
            }
        }
        // processes look them up in the snapshot
        if let Err(error) = self.runner.ledger.publish() {
            all.reason = format!("{}; the snapshot was not published: {error}", all.reason);
        }
        all.set = winner.zip(self.modules.first()).map(|((_, set), shared)| without(&set.set, &shared.module.base));
        Ok(all)
    }

    /// The events of a module's races.
    fn events(&self, place: usize) -> Events {
        self.of_modules.get(place).map_or_else(Events::default, |(events, _)| events.clone())
    }

    fn key(&self, module: &OptionModule) -> CacheKey {
        let digest = module.key.as_ref().copied().unwrap_or_else(|_| module.program.digest());
        CacheKey {
            call: call(digest),
            direction: Direction::Forward,
            device: self.runner.timer.info().device.identity.clone(),
        }
    }

    /// The same status for every module, without a set.
    fn without_a_set(&self, status: Status, reason: String) -> SharedOptions {
        let of = |(shared, (_, tally)): (&SharedModule, &(Events, Arc<Mutex<Tally>>))| OperationResult {
            occurrences: 1,
            how: shared.name.clone(),
            status,
            reason: reason.clone(),
            flags: shared.module.key.as_ref().err().map(|why| not_cached(why)).into_iter().collect(),
            rounds_measured: rounds_measured(tally),
            time_breakdown: time_breakdown(tally),
            ..OperationResult::undecided(
                self.key(&shared.module).call,
                Direction::Forward,
                shared.module.base.to_config(),
            )
        };
        let operations = self.modules.iter().zip(&self.of_modules).map(of).collect();
        SharedOptions { operations, entries: Vec::new(), set: None, reason }
    }
}

/// Races the base, its copy and every set on one module.
fn race(
    races: &mut VariantRaces<'_>,
    module: &OptionModule,
    sets: &[OptionVariant],
    stage: &str,
    rounds: u32,
) -> Result<Raced, RaceError> {
    let is_fresh = races.options.force && Some(&rounds) == LOOKS.first();
    races.race(&with_base(module, sets), &Rules { stage, exact: Some(rounds), is_fresh, joins: false })
}

/// The sets behind the default and its copy.
fn with_base(module: &OptionModule, sets: &[OptionVariant]) -> Vec<OptionVariant> {
    let base = variants_of(module).base();
    [base.clone(), base].into_iter().chain(sets.iter().cloned()).collect()
}

/// Lets fresh processes say what the sets that win on a module take of the default's time there.
fn confirm_wins(
    races: &mut VariantRaces<'_>,
    module: &OptionModule,
    sets: &[OptionVariant],
    (on, min_improvement): (&mut OnModule, f64),
) -> Result<(), RaceError> {
    if races.options.processes == 0 {
        return Ok(());
    }
    let rules = Rules { stage: LAST_STAGE, exact: None, is_fresh: false, joins: false };
    for set in (0..sets.len()).filter(|&set| on.wins(set, min_improvement)).collect::<Vec<_>>() {
        let known = races.confirm(&with_base(module, sets), &rules, set + 2)?;
        if let Some(ratio) = on.ratios.get_mut(set) {
            *ratio = known.map(|known| (known.verdict.ratio, known.verdict.interval));
        }
    }
    Ok(())
}

/// The rows of the last rounds without the default's copy, each set with the ratio that it was judged by.
fn rows_of(raced: &Raced, on: &OnModule, best: usize) -> Vec<CandidateResult> {
    let row = |(place, row): (usize, &CandidateResult)| {
        let mut row = row.clone();
        row.tied_with_best = place == best;
        let judged = place.checked_sub(2).and_then(|set| on.ratios.get(set).copied().flatten());
        judged.into_iter().for_each(|(ratio, interval)| judged_by(&mut row, ratio, interval));
        row
    };
    raced.rows.iter().enumerate().filter(|(place, _)| *place != 1).map(row).collect()
}

/// The failure of one module among several.
enum ModuleFault {
    Program(Failure),
    Inputs(MeasureError),
}

/// The failure if it concerns one module only; a lost worker or device ends the run for all.
fn of_module(ended: RaceError) -> Result<ModuleFault, RaceError> {
    match ended {
        RaceError::Failed(failure) if !matches!(failure.kind, FailureKind::Device | FailureKind::Protocol) => {
            Ok(ModuleFault::Program(failure))
        }
        RaceError::Inputs(error) => Ok(ModuleFault::Inputs(error)),
        ended => Err(ended),
    }
}

/// The verdict of rounds whose candidates are the base, its copy and this many sets.
fn verdict(raced: &Raced, sets: usize, rules: &DecisionRules) -> FinalVerdict {
    let alive = (2..sets + 2).filter(|candidate| !raced.failures.contains_key(candidate));
    let finalists: Vec<Finalist> = alive.map(|candidate| Finalist { candidate, choices: 1 }).collect();
    decide(&counted(raced), (0, 1), &finalists, rules)
}
