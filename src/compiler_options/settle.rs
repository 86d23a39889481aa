//! The steps: every choice alone, the promising ones together, and the remaining ones in separate rounds.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::entry::{DecidedModule, KnownDecision, beside_itself, known, not_of_jax};
use super::failed::{as_known, forget_failure, is_lasting, known_failure, note_failure};
use super::module::{OptionModule, OptionTuneError, TunedOptions, call, hash_choices, not_cached, not_of_one_program};
use super::precise::{error_from_reference, planned, try_reference};
use super::race::{Rules, VariantRaces, counted, forecast, time_for_last};
use super::rescue::{FirstRace, first_that_runs, rescuers};
use super::rows::{SetRows, judged_by, take_rows, take_verdict};
use super::special_values::{error_of, special_value_flags, special_values};
use super::variant::{OptionVariant, Variants};
use super::verdict::{FinalVerdict, Finalist, decide};
use crate::cache::{CacheKey, Entry};
use crate::call::Direction;
use crate::candidates::{OptionChoice, OptionKind};
use crate::config::Config;
use crate::counted::counted as number_of;
use crate::decision::{DecisionRules, ProcessOutcome, ProcessQuestion, ProcessVerdict};
use crate::digest::{Digest, FieldHasher};
use crate::failure::{Failure, FailureKind};
use crate::measure::MeasuredProgram;
use crate::measured_by::MachineLoad;
use crate::race::{
    CandidateOutcome, CandidateResult, CandidateTimes, Deadline, RaceError, RaceOptions, RaceStage, Raced, Runner,
    preflight,
};
use crate::timer::events::{EventKind, Slice};
use crate::tune::{
    OperationResult, Status, Tally, TuneError, ended_by_user, fill_from_entry, not_confirmed, rounds_measured,
    time_breakdown, undecided,
};

/// The numbers of last rounds after which the interval is evaluated.
pub(super) const LOOKS: [u32; 4] = [21, 41, 81, 161];
/// Maximum number of choices that are tried together with the best one.
const TRIED_TOGETHER: usize = 24;
/// The gain that another choice must add to join the set.
const ADDS: f64 = 0.01;

/// Finds the options that run a module fastest and commits them. The result includes the choices that are refused,
/// crash or compute something else.
///
/// # Errors
/// If the inputs cannot be made, or a store fails.
pub fn tune_compiler_options(
    runner: &mut Runner<'_>,
    module: &OptionModule,
    options: &RaceOptions,
) -> Result<TunedOptions, OptionTuneError> {
    let scratch = tempfile::tempdir().map_err(|source| TuneError::Scratch { path: std::env::temp_dir(), source })?;
    let program = module.program.write(scratch.path(), "program")?;
    let (events, tally) = Tally::of(runner.events);
    let call = call(module.key.as_ref().copied().unwrap_or(program.program.digest));
    let base = module.base.to_config();
    let mut result = OperationResult {
        occurrences: 1,
        how: "the module itself".to_owned(),
        ..OperationResult::undecided(call.clone(), Direction::Forward, base)
    };
    let name = call.to_short();
    let slice = events.open(Slice::Operation { name: &name, index: 0, of: 1 });
    let until = Deadline::after(options.budget);
    let races = VariantRaces::new(runner.telling(&events), options, (call, &program), module, (scratch.path(), until));
    let done =
        Walk { races, module, result: &mut result, began: Instant::now(), tally: &tally, rows: SetRows::new() }.run();
    result.rounds_measured = rounds_measured(&tally);
    let entry = match done {
        Ok(entry) => entry,
        Err(RaceError::Failed(failure)) => {
            result.reason = failure.to_string();
            result.failure = Some(failure);
            None
        }
        Err(RaceError::Interrupted) => {
            result.status = Status::Interrupted;
            ended_by_user(result.rounds_measured).clone_into(&mut result.reason);
            None
        }
        Err(RaceError::Fatal(error)) => return Err(error.into()),
        Err(RaceError::Inputs(error)) => return Err(error.into()),
    };
    result.time_breakdown = time_breakdown(&tally);
    result.flags.extend(entry.as_ref().and_then(|_| not_of_jax(&runner.timer.info().device)));
    let OperationResult { status, reason, speed_up, .. } = &result;
    events.tell(EventKind::Finished { status: status.name(), reason, speed_up: *speed_up });
    drop(slice);
    Ok(TunedOptions { operation: result, entry })
}

struct Walk<'a, 'r> {
    races: VariantRaces<'a>,
    module: &'a OptionModule,
    result: &'r mut OperationResult,
    began: Instant,
    /// The time spent so far.
    tally: &'a Mutex<Tally>,
    /// What is known about each set. Later races replace earlier ones.
    rows: SetRows,
}

impl Walk<'_, '_> {
    /// Returns the known result before compiling anything. Every result of a search is stored, including that nothing
    /// runs.
    fn run(mut self) -> Result<Option<(CacheKey, Arc<Entry>)>, RaceError> {
        let search = self.search()?;
        let options = self.races.options;
        let key = CacheKey {
            call: self.races.call.clone(),
            direction: Direction::Forward,
            device: self.races.runner.timer.info().device.identity.clone(),
        };
        if self.module.key.is_ok() {
            let program = self.module.program.meaning();
            match known((&*self.races.runner.timer, self.races.runner.ledger), options, &key, (&search, program))? {
                KnownDecision::Entry(entry) => {
                    fill_from_entry(self.result, &entry);
                    self.result.status = Status::Cached;
                    "already known; nothing was measured (`--force` measures again)"
                        .clone_into(&mut self.result.reason);
                    return Ok(Some((key, entry)));
                }
                KnownDecision::No(note) => self.result.flags.extend(note),
            }
        }
        let failed =
            known_failure((&*self.races.runner.timer, self.races.runner.ledger), options, &search, self.module)?;
        if let Some(failure) = failed {
            self.result.reason = as_known(&failure);
            self.result.failure = Some(failure);
            return Ok(None);
        }
        let found = self.find(key, &search);
        let kept = (&*self.races.runner.timer, self.races.runner.ledger);
        match &found {
            Ok(_) => forget_failure(kept, options, &search, self.module)?,
            Err(RaceError::Failed(failure)) if is_lasting(failure) && !self.races.until.is_over() => {
                note_failure(kept, options, &search, self.module, failure)?;
            }
            Err(_) => {}
        }
        found
    }

    /// Looks for the best set.
    fn find(&mut self, key: CacheKey, search: &str) -> Result<Option<(CacheKey, Arc<Entry>)>, RaceError> {
        let mut variants = Variants { base: self.module.base.clone(), choices: &self.module.choices };
        let mut base = variants.base();
        let mut singles = variants.singles();
        let signature = self.races.signature(&base, &rescuers(&singles, self.module))?;
        let inputs = self.races.make_inputs(self.module, &signature)?;
        let (program, scratch) = (&self.module.program, self.races.scratch);
        let results = signature.results.as_deref();
        let mut preflight = preflight(&*self.races.runner.timer, &inputs, results, program.partitions);
        if self.module.choices.iter().any(|choice| choice.kind == OptionKind::FastMath) {
            preflight = preflight.with_other_inputs(&signature.parameters);
        }
        preflight.check(scratch)?;
        let (preflight, wide) = planned(program, preflight, &signature, scratch);
        let preflight = preflight.to_string();
        self.races.runner.events.tell(EventKind::Ahead(&preflight));
        let rescued = self.first(&base, &singles)?;
        if let Some(rescue) = &rescued {
            // the remaining ones are tried on top of the first set that runs
            variants.base = rescue.set.clone();
            base = rescue.clone();
            base.choices.clear();
            singles = variants.singles();
            self.result.baseline.config = base.config.clone();
        }
        let of_base = self.rows.get(&base.config).and_then(|row| Some(row.times()?.median_ns));
        let ahead = forecast(&self.races, &time_breakdown(self.tally), of_base.unwrap_or_default(), singles.len());
        self.races.runner.events.tell(EventKind::Ahead(&ahead));
        let measured = self.screen(&base, &singles)?;
        let best = self.combine(&variants, &base, &measured)?;
        let mut finals = self.finals(&variants, &base, &best, &measured)?;
        self.try_reference(&variants, &base, wide, &mut finals)?;
        self.try_special_values(&variants, &base)?;
        self.conclude(key, search.to_owned(), rescued.is_some(), finals)
    }

    /// Digest of everything that a decision follows from, except the samples and the conditions of their measurement.
    fn search(&self) -> Result<String, RaceError> {
        let mut hasher = FieldHasher::new("compiler options, 3");
        let inputs = self.module.inputs.digest()?;
        hasher.field(self.module.program.identity().as_bytes()).field(inputs.as_bytes());
        hasher.field(self.module.base.to_config().as_str().as_bytes());
        hasher.field(&self.races.options.rules.min_improvement.to_le_bytes());
        hash_choices(&self.module.choices, &mut hasher);
        Ok(hasher.finish().to_string())
    }

    /// Races the base with a second compilation of itself. If it fails, returns the first choice that does not.
    fn first(&mut self, base: &OptionVariant, singles: &[OptionVariant]) -> Result<Option<OptionVariant>, RaceError> {
        let FirstRace { raced, rescue, failed } =
            first_that_runs(&mut self.races, base, &rescuers(singles, self.module))?;
        self.result.flags.extend(raced.notes.iter().cloned());
        let of_itself = raced.differences.get(&1).map(Vec::as_slice).unwrap_or_default();
        let most =
            |output: usize| of_itself.iter().find(|one| one.output == output).map_or(0.0, |one| one.max_absolute);
        let outputs = of_itself.iter().map(|one| one.output + 1).max().unwrap_or(0);
        self.races.slack = (0..outputs).map(most).collect();
        take_rows(&mut self.rows, &raced, None, &[1]);
        self.rows.extend(failed.iter().map(|row| (row.config.clone(), row.clone())));
        let default = failed.first().and_then(CandidateResult::failure);
        if let Some((rescue, failure)) = rescue.as_ref().zip(default) {
            self.result.flags.push(format!(
                "the default options fail ({failure}); {} is the first set that runs, of {} tried, and becomes the \
                 baseline",
                rescue.config.to_brief(),
                failed.len()
            ));
        }
        Ok(rescue)
    }

    /// Races every choice alone beside the base. Returns those with a time and their ratios, the fastest first.
    fn screen(
        &mut self,
        base: &OptionVariant,
        singles: &[OptionVariant],
    ) -> Result<Vec<(OptionVariant, f64)>, RaceError> {
        let variants: Vec<OptionVariant> = std::iter::once(base).chain(singles).cloned().collect();
        // elsewhere XLA measures during compilation, so one program may compile to several executables
        let joins = self.races.runner.timer.info().device.identity.platform == "cpu";
        let is_fresh = self.races.options.force;
        let raced = self.races.race(&variants, &Rules { stage: "screen", exact: None, is_fresh, joins })?;
        let refused = raced.failures.values().filter(|failure| is_refusal(failure)).count();
        let failed = raced.failures.len() - refused;
        let same = raced.same_executable.len();
        self.result.flags.push(format!(
            "{}: {refused} refused, {failed} failed, {same} with the same executable as another, {} measured",
            number_of(singles.len(), "value"),
            variants.len().saturating_sub(1 + refused + failed + same)
        ));
        take_rows(&mut self.rows, &raced, Some(RaceStage::Alone), &[]);
        let seen = raced.rows.iter().zip(&variants).skip(1).filter_map(|(row, variant)| match row.outcome {
            CandidateOutcome::Measured(CandidateTimes { ratio, .. }) => Some((variant.clone(), ratio)),
            _ => None,
        });
        let mut measured: Vec<(OptionVariant, f64)> = seen.collect();
        measured.sort_by(|a, b| a.1.total_cmp(&b.1));
        Ok(measured)
    }

    /// The measured variants that seem faster than the base.
    fn promising<'m>(&self, measured: &'m [(OptionVariant, f64)]) -> impl Iterator<Item = &'m OptionVariant> + use<'m> {
        let enough = 1.0 - self.races.options.rules.min_improvement / 2.0;
        measured.iter().filter(move |(_, ratio)| *ratio < enough).map(|(variant, _)| variant)
    }

    /// Combines the best choice with others, one more at a time while each adds enough. First tries all measured
    /// choices, because one without an effect alone may help beside the best one; then only those that helped.
    fn combine(
        &mut self,
        variants: &Variants<'_>,
        base: &OptionVariant,
        measured: &[(OptionVariant, f64)],
    ) -> Result<Vec<usize>, RaceError> {
        let Some(first) = self.promising(measured).next() else { return Ok(Vec::new()) };
        let mut best = first.clone();
        let mut more: Vec<usize> =
            measured.iter().take(TRIED_TOGETHER).flat_map(|(variant, _)| variant.choices.iter().copied()).collect();
        for (size, in_race) in [(2, RaceStage::Pairs), (3, RaceStage::Triples)] {
            more.retain(|choice| !best.choices.contains(choice));
            let larger: Vec<OptionVariant> =
                more.iter().filter_map(|&choice| variants.with(&[&best.choices[..], &[choice]].concat())).collect();
            if larger.is_empty() || self.races.until.is_over() {
                break;
            }
            let raced: Vec<OptionVariant> = [base.clone(), best.clone()].into_iter().chain(larger).collect();
            let stage = format!("together-{size}");
            let is_fresh = self.races.options.force;
            let seen = self.races.race(&raced, &Rules { stage: &stage, exact: None, is_fresh, joins: false })?;
            take_rows(&mut self.rows, &seen, Some(in_race), &[]);
            let ratio = |index: usize| seen.rows.get(index).and_then(|row| Some(row.times()?.ratio));
            let before = ratio(1).unwrap_or(1.0);
            let mut found: Vec<(usize, f64)> = (2..raced.len())
                .filter_map(|index| Some((index, ratio(index)?)))
                .filter(|(_, ratio)| *ratio < before * (1.0 - ADDS))
                .collect();
            found.sort_by(|a, b| a.1.total_cmp(&b.1));
            let Some((index, _)) = found.first() else { break };
            best = raced.get(*index).cloned().unwrap_or(best);
            let helped = found.iter().filter_map(|(index, _)| raced.get(*index));
            more = helped.flat_map(|variant| variant.choices.iter().copied()).collect();
        }
        Ok(best.choices)
    }

    /// Measures the base, its copy, every part of the best set, and the two best choices alone in separate rounds.
    fn finals(
        &mut self,
        variants: &Variants<'_>,
        base: &OptionVariant,
        best: &[usize],
        measured: &[(OptionVariant, f64)],
    ) -> Result<Option<Finals>, RaceError> {
        let mut finalists = variants.parts(best);
        for variant in self.promising(measured).take(2) {
            if finalists.iter().all(|other| other.config != variant.config) {
                finalists.push(variant.clone());
            }
        }
        if finalists.is_empty() || self.races.until.is_over() {
            return Ok(None);
        }
        let raced: Vec<OptionVariant> = [base.clone(), base.clone()].into_iter().chain(finalists).collect();
        let (begin, allowed) = (Instant::now(), time_for_last(self.began));
        let mut finals = None;
        for (look, rounds) in LOOKS.into_iter().enumerate() {
            let is_fresh = self.races.options.force && look == 0;
            let rules = Rules { stage: "last", exact: Some(rounds), is_fresh, joins: false };
            let seen = self.races.race(&raced, &rules)?;
            let alive = raced.iter().enumerate().skip(2).filter(|(index, _)| !seen.failures.contains_key(index));
            let alive: Vec<Finalist> =
                alive.map(|(candidate, variant)| Finalist { candidate, choices: variant.choices.len() }).collect();
            let rules: DecisionRules = self.races.options.rules;
            let verdict = decide(&counted(&seen), (0, 1), &alive, &rules);
            let is_last = verdict.is_settled
                || self.races.until.is_over()
                || (!self.races.until.is_set() && begin.elapsed() > allowed)
                || alive.is_empty();
            finals = Some(Finals { variants: raced.clone(), alive, raced: seen, verdict });
            if is_last {
                break;
            }
        }
        if let Some(finals) = &finals {
            take_rows(&mut self.rows, &finals.raced, Some(RaceStage::Last), &[1]);
        }
        Ok(finals)
    }

    /// Compares finalists with the module in `f64`. A finalist whose error is clearly larger than the default's cannot
    /// win.
    fn try_reference(
        &mut self,
        variants: &Variants<'_>,
        base: &OptionVariant,
        wide: Result<MeasuredProgram, String>,
        finals: &mut Option<Finals>,
    ) -> Result<(), RaceError> {
        let finalists = finals.as_ref().map_or(&[][..], |finals| &finals.variants);
        let note = try_reference(&mut self.races, wide, (variants, base), finalists, &mut self.rows)?;
        self.result.flags.extend(note);
        let Some(Finals { variants, alive, raced, verdict }) = finals else { return Ok(()) };
        let row = |finalist: &Finalist| self.rows.get(&variants.get(finalist.candidate)?.config);
        alive.retain(|finalist| row(finalist).is_none_or(|row| row.failure().is_none()));
        *verdict = decide(&counted(raced), (0, 1), alive, &self.races.options.rules);
        Ok(())
    }

    /// Runs each set that changes arithmetic on values that it need not honour, and writes the outcome into its row.
    fn try_special_values(&mut self, variants: &Variants<'_>, base: &OptionVariant) -> Result<(), RaceError> {
        let runs = |config: &Config| {
            self.rows.get(config).is_some_and(|row| matches!(row.outcome, CandidateOutcome::Measured(_)))
        };
        let tried: Vec<OptionVariant> =
            self.rows.keys().filter(|config| runs(config)).filter_map(|config| variants.of(config)).collect();
        let tried: Vec<OptionVariant> =
            tried.into_iter().filter(|variant| variants.changes_arithmetic(variant)).collect();
        if tried.is_empty() || self.races.until.is_over() {
            return Ok(());
        }
        let found = special_values(&mut self.races, base, &tried)?;
        for (variant, found) in tried.iter().zip(found) {
            self.rows.entry(variant.config.clone()).and_modify(|row| row.special_values = found);
        }
        Ok(())
    }

    /// Makes an entry from the last rounds.
    fn conclude(
        &mut self,
        key: CacheKey,
        search: String,
        is_rescued: bool,
        finals: Option<Finals>,
    ) -> Result<Option<(CacheKey, Arc<Entry>)>, RaceError> {
        self.result.load = MachineLoad::of(self.races.is_contended);
        let tied = finals.as_ref().map(|last| take_verdict(&mut self.rows, &last.variants, &last.verdict));
        self.result.candidates = std::mem::take(&mut self.rows).into_values().collect();
        let base = self.result.baseline.config.clone();
        let of_base = self.result.candidates.iter().find(|row| row.config == base).and_then(|row| row.times().copied());
        let Some(of_base) = of_base else {
            "too few rounds of the default: allow more time".clone_into(&mut self.result.reason);
            return Ok(None);
        };
        let least = self.races.options.rules.min_improvement * 100.0;
        self.result.status = Status::BaselineKept;
        self.result.reason = format!("no set of options is significantly faster by {least} %");
        finals.iter().for_each(|finals| self.take_finals(finals));
        let winner = match finals.as_ref().and_then(|finals| Some((finals, finals.winner()?))) {
            Some((finals, winner)) => self.confirm(finals, winner)?,
            None => None,
        };
        if winner.is_none() && !is_rescued && self.hides_gains() {
            self.result.status = Status::Undecided;
            self.result.reason = format!(
                "nothing is significantly faster by {least} %, but other processes used the cores, which hides gains"
            );
        }
        if self.result.status == Status::Undecided {
            return Ok(None);
        }
        if let Some((variant, times)) = &winner
            && !self.take_winner(variant, times)
        {
            return Ok(None);
        }
        if is_rescued && self.result.status == Status::BaselineKept {
            self.result.status = Status::Tuned;
            "the default fails, and these options run".clone_into(&mut self.result.reason);
        }
        let job = finals.as_ref().map(|finals| finals.raced.digest);
        let process: Vec<&str> =
            winner.iter().flat_map(|(variant, _)| variant.process.keys().map(String::as_str)).collect();
        let (config, times) = match &winner {
            Some((variant, times)) => (variant.config.clone(), *times),
            None => (base.clone(), beside_itself(of_base)),
        };
        let (candidates, program) = (&self.result.candidates, self.module.program.meaning());
        let tied = tied.unwrap_or_default();
        let processes = self.result.confirmation.as_ref().filter(|_| winner.is_some());
        let processes = processes.map_or(0, |known| known.processes.len() as u32);
        let load = self.result.load.clone();
        let decided =
            DecidedModule { config, times, tied, base, of_base, candidates, processes, load, job, search, program };
        let entry = Arc::new(decided.into_entry(&*self.races.runner.timer, self.races.options));
        fill_from_entry(self.result, &entry);
        self.commit((key, entry), job, &process)
    }

    /// Whether a busy machine may hide a gain: some set of options may save the least that counts.
    fn hides_gains(&self) -> bool {
        let most = 1.0 - self.races.options.rules.min_improvement;
        let may_gain = |row: &CandidateResult| row.times().is_some_and(|times| times.interval.low < most);
        let is_kept = self.result.status == Status::BaselineKept && self.result.confirmation.is_none();
        self.races.is_contended && is_kept && self.result.candidates.iter().any(may_gain)
    }

    /// The winner with what fresh processes say of its times, if they confirm it; the result says what they found.
    fn confirm<'f>(
        &mut self,
        finals: &'f Finals,
        (variant, times): (&'f OptionVariant, CandidateTimes),
    ) -> Result<Option<(&'f OptionVariant, CandidateTimes)>, RaceError> {
        let Some(winner) = finals.verdict.winner.filter(|_| self.races.options.processes > 0) else {
            return Ok(Some((variant, times)));
        };
        let rules = Rules { stage: "last", exact: None, is_fresh: false, joins: false };
        let confirmation = self.races.confirm(&finals.variants, &rules, winner)?;
        self.result.confirmation.clone_from(&confirmation);
        let question = ProcessQuestion::gain(&self.races.options.rules);
        Ok(match confirmation.as_ref().map(|known| (question.at_last(&known.verdict), known.verdict)) {
            Some((ProcessOutcome::Confirmed, ProcessVerdict { ratio, interval, .. })) => {
                let mut rows = self.result.candidates.iter_mut();
                if let Some(row) = rows.find(|row| row.config == variant.config) {
                    judged_by(row, ratio, interval);
                }
                Some((variant, CandidateTimes { ratio, interval, ..times }))
            }
            Some((ProcessOutcome::Refuted, _)) => {
                self.result.reason = confirmation.as_ref().map(not_confirmed).unwrap_or_default();
                None
            }
            _ => {
                self.result.status = Status::Undecided;
                self.result.reason = undecided(confirmation.as_ref());
                None
            }
        })
    }

    /// Writes what the last rounds say about the default, and whether they decide.
    fn take_finals(&mut self, Finals { verdict, .. }: &Finals) {
        if verdict.copy_bound.is_finite() {
            let bound = 100.0 * verdict.copy_bound;
            self.result.flags.push(format!("compiled twice, the default differs from itself by up to {bound:.1} %"));
            self.result.resolution = Some(verdict.copy_bound);
        }
        if verdict.winner.is_none() && !verdict.is_settled {
            let bound = 100.0 * verdict.copy_bound.max(self.races.options.rules.min_improvement);
            self.result.reason = format!("nothing is significantly faster by {bound:.1} %: more time may tell");
        }
    }

    /// Writes the winner into the result. Returns whether it is believed.
    fn take_winner(&mut self, variant: &OptionVariant, times: &CandidateTimes) -> bool {
        if 1.0 / times.ratio > self.races.options.rules.max_speed_up {
            self.result.status = Status::NotBelieved;
            self.result.reason = format!("{} is faster than is believable", variant.config.to_brief());
            return false;
        }
        let is_set = |choice: &OptionChoice| variant.set.get(&choice.name) == Some(&choice.value);
        let mut fast = self.module.choices.iter().filter(|choice| choice.kind == OptionKind::FastMath);
        let row = self.result.candidates.iter().find(|row| row.config == variant.config);
        self.result.flags.extend(row.and_then(|row| error_from_reference(&row.reference_errors)));
        if let Some(row) = row.filter(|_| fast.any(is_set)) {
            self.result.flags.push(error_of(&row.differences));
            self.result.flags.extend(special_value_flags(&row.special_values));
        }
        self.result.status = Status::Tuned;
        "significantly faster than the default, in new rounds".clone_into(&mut self.result.reason);
        true
    }

    /// Commits the entry, if a process can find and use it. `process` names its options of a whole process.
    fn commit(
        &mut self,
        (key, entry): (CacheKey, Arc<Entry>),
        job: Option<Digest>,
        process: &[&str],
    ) -> Result<Option<(CacheKey, Arc<Entry>)>, RaceError> {
        let not_kept = match &self.module.key {
            Err(why) => Some(not_cached(why)),
            Ok(_) => (!process.is_empty()).then(|| not_of_one_program(process)),
        };
        if let Some(why) = not_kept {
            self.result.flags.push(why);
            return Ok(None);
        }
        self.races.runner.ledger.commit(job, &key, &entry)?;
        // processes look it up in the snapshot
        if let Err(error) = self.races.runner.ledger.publish() {
            self.result.flags.push(format!("the snapshot was not published: {error}"));
        }
        Ok(Some((key, entry)))
    }
}

/// The last race and its outcome.
struct Finals {
    variants: Vec<OptionVariant>,
    /// The finalists that may win.
    alive: Vec<Finalist>,
    raced: Raced,
    verdict: FinalVerdict,
}

impl Finals {
    /// The variant that wins, with its times by the verdict.
    fn winner(&self) -> Option<(&OptionVariant, CandidateTimes)> {
        let winner = self.verdict.winner?;
        let (.., ratio, interval) = *self.verdict.ratios.iter().find(|(one, ..)| one.candidate == winner)?;
        let seen = self.raced.rows.get(winner)?.times()?;
        Some((self.variants.get(winner)?, CandidateTimes { ratio, interval, ..*seen }))
    }
}

/// Whether the compiler does not know the option or the value.
fn is_refusal(failure: &Failure) -> bool {
    let words = ["No such compile option", "While setting option", "this plugin does not accept `--"];
    failure.kind == FailureKind::Compile && words.iter().any(|words| failure.message.contains(words))
}
