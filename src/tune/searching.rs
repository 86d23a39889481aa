//! Which configs of an invocation are raced: all of them, or those that a search picks if there are too many.
//!
//! A strategy of [`crate::search`] asks for a config; it is measured as a job of its own, beside the baseline
//! ([`super::pair`]), and the strategy gets the ratio. All of that is in the sample log under the job of two, where
//! a resumed run or another strategy finds it. The best are raced as usual.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{CacheKey, Entry, Tier};
use crate::config::Config;
use crate::counted::counted;
use crate::digest::FieldHasher;
use crate::failure::Failure;
use crate::race::{JobIdentity, RaceError};
use crate::registry::{Candidate, Invocation, NotRunnable};
use crate::search::{Budget, NoSpace, StrategyPlan, TrialOutcome, start};
use crate::timer::ProgramFile;
use crate::timer::events::{EventKind, Events, Phase, Slice};

use super::choices::{Choices, only};
use super::job::{InputFolder, own_programs};
use super::pair::PairOutcome;
use super::tuner::{Autotuner, DecidedEntry, known_before, timed_otherwise};
use super::{MAX_RACED, OperationResult, PlannedInvocation, SearchEnd, Searched, Status, TuneError};

/// Most candidates of a call that are all lowered on demand: of more, a search picks those that are worth it.
const MAX_LOWERED: usize = 16;

/// What to do for an invocation.
pub(super) enum InvocationPlan {
    /// Its candidates are raced.
    Race(Race),
    /// Nothing remains: it was already known or was ended, as the result says.
    Finished(DecidedEntry),
}

/// Candidates to race, and how they were picked.
#[derive(Clone)]
pub(super) struct Race {
    pub(super) invocation: Arc<Invocation>,
    /// Digest of the search that found them.
    pub(super) search: Option<String>,
    /// Why only the baseline is left, if everything that was tried failed.
    pub(super) all_failed: Option<String>,
}

impl Race {
    fn of_all(invocation: Arc<Invocation>) -> InvocationPlan {
        InvocationPlan::Race(Self { invocation, search: None, all_failed: None })
    }
}

/// The state of a search.
struct Search {
    /// The outcomes in the order in which the strategy observed them.
    observed: Vec<(usize, TrialOutcome)>,
    first_failure: Option<String>,
    searched: Searched,
}

/// What is known about points before anything is measured.
#[derive(Default)]
struct OfCompiler {
    refused: Vec<usize>,
    figures: Vec<Vec<Option<f64>>>,
}

impl Autotuner<'_> {
    /// Determines what to race, by a search if there are too many configs.
    pub(super) fn plan_race(
        &mut self,
        events: &Events,
        planned: &PlannedInvocation,
        result: &mut OperationResult,
    ) -> Result<InvocationPlan, TuneError> {
        let invocation = &planned.invocation;
        let on_demand = self.lowers(invocation);
        let (recorded, most) = match on_demand {
            // how many share a program, nobody knows yet
            true => (invocation.candidates.len(), MAX_LOWERED),
            false => (own_programs(invocation).len(), MAX_RACED),
        };
        let is_small = planned.space.is_none() && recorded <= most;
        let is_not_run = matches!(invocation.runnable(), Err(NotRunnable::ValuesUnknown(_)));
        let has_baseline = invocation.candidates.iter().any(|candidate| candidate.config == invocation.baseline);
        if is_not_run || !has_baseline {
            return Ok(Race::of_all(Arc::clone(invocation)));
        }
        if is_small {
            let raced = self.lowered(events, invocation, Arc::clone(invocation));
            return raced.map_or_else(|stopped| not_begun(stopped, result), |raced| Ok(Race::of_all(raced)));
        }
        if self.options.one_job_a_call || self.timer.info().can.only_one_job_a_call {
            let raced = match self.lowered(events, invocation, Arc::new(planned.without_search())) {
                Ok(raced) => raced,
                Err(stopped) => return not_begun(stopped, result),
            };
            let (tried, why) = (raced.candidates.len(), "profiles are kept or read for one race of each call");
            result.flags.push(format!("{tried} of its configs are tried, without a search: {why}"));
            return Ok(Race::of_all(raced));
        }
        let alone = only(invocation, [invocation.baseline.clone()]);
        let Ok(identity) = self.identity(&alone) else {
            return Ok(Race::of_all(Arc::clone(invocation)));
        };
        let digest = self.search_digest(&identity, planned);
        let cached = self.cached(&identity.key)?;
        let entry = cached.as_ref().filter(|(_, tier)| *tier != Tier::Shipped && !self.options.race.force);
        if let Some((entry, _)) = entry {
            if entry.search() == Some(digest.as_str()) {
                return self.searched_before(events, (invocation, digest, identity.key), entry, result);
            }
            let theirs = self.identity_of_other_timer(&alone, entry).map(|theirs| self.search_digest(&theirs, planned));
            if theirs.is_some() && entry.search() == theirs.as_deref() {
                result.flags.extend(timed_otherwise(entry, &self.timer.info().name));
                return Ok(InvocationPlan::Finished(Some(known_before(result, identity.key, entry))));
            }
        }
        if let Err(error) = self.options.search.budget.check(None) {
            result.reason = error.to_string();
            return Ok(InvocationPlan::Finished(None));
        }
        let listing = events.open(Slice::Phase(Phase::ListConfigs));
        let choices = match self.choices(planned, &mut result.flags) {
            Ok(choices) => choices,
            Err(error) => {
                result.reason = error.to_string();
                return Ok(InvocationPlan::Finished(None));
            }
        };
        drop(listing);
        if choices.space.count() <= most {
            let known: Vec<&Config> = invocation.candidates.iter().map(|candidate| &candidate.config).collect();
            let added = choices.configs().filter(|config| !known.contains(&config));
            let all: Vec<Config> = known.iter().map(|&config| config.clone()).chain(added).collect();
            let raced = self.lowered(events, invocation, Arc::new(only(invocation, all)));
            raced.map_or_else(|stopped| not_begun(stopped, result), |raced| Ok(Race::of_all(raced)))
        } else {
            let cached = cached.map(|(entry, _)| entry.config.clone());
            self.search(events, invocation, choices, (&identity.key, cached, digest), result)
        }
    }

    /// The configs to choose from, without the space if it cannot be searched.
    fn choices(&self, planned: &PlannedInvocation, flags: &mut Vec<String>) -> Result<Choices, NoSpace> {
        let how = (self.timer.info().can.build_programs, self.lowers(&planned.invocation));
        Choices::new(planned, how, self.options.race.seed).or_else(|error| {
            let Some(_) = &planned.space else { return Err(error) };
            flags.push(format!("the search space cannot be searched: {error}"));
            Choices::new(&PlannedInvocation { space: None, ..planned.clone() }, how, self.options.race.seed)
        })
    }

    /// Whether candidates of a call are lowered when they are needed.
    fn lowers(&self, invocation: &Invocation) -> bool {
        self.lowering.is_some() && invocation.is_lowered_on_demand()
    }

    /// Some candidates of a `whole` call, lowered as far as that was not tried before; fails if the recorders do, and if
    /// the user ends it before all are lowered.
    fn lowered(
        &self,
        events: &Events,
        whole: &Invocation,
        mut some: Arc<Invocation>,
    ) -> Result<Arc<Invocation>, RaceError> {
        if let Some(lowering) = self.lowering.filter(|_| whole.is_lowered_on_demand()) {
            let _lowering = events.open(Slice::Phase(Phase::Lower));
            let is_cancelled = || self.cancel.load(Ordering::Relaxed);
            let candidates = &mut Arc::make_mut(&mut some).candidates;
            lowering.complete(self.registry, whole, candidates, &is_cancelled).map_err(RaceError::Failed)?;
            if is_cancelled() && candidates.iter().any(Candidate::is_open) {
                return Err(RaceError::Interrupted);
            }
        }
        Ok(some)
    }

    /// Runs the search and returns its outcome.
    fn search(
        &mut self,
        events: &Events,
        invocation: &Invocation,
        mut choices: Choices,
        (key, cached, digest): (&CacheKey, Option<Config>, String),
        result: &mut OperationResult,
    ) -> Result<InvocationPlan, TuneError> {
        let (strategy, configs) = (self.options.search.kind.name(), choices.space.count());
        let starts = invocation.starts().iter().filter(|config| choices.space.find(config).is_some()).count();
        if starts > 0 {
            result
                .flags
                .push(format!("the search begins with {} of its project's own table", counted(starts, "config")));
        }
        let _searching = events.open(Slice::Search { strategy, configs, sampled: choices.is_sample });
        let mut search = self.begin_search(invocation, &choices);
        let ended = self.run_search(events, invocation, &mut choices, key, &mut search);
        search.searched.configs = choices.space.count();
        search.searched.ended = match &ended {
            Ok(ended) => *ended,
            Err(RaceError::Interrupted) => SearchEnd::Interrupted,
            Err(_) => SearchEnd::Failed,
        };
        let plan = match ended {
            Ok(_) => {
                let finalists = self.options.search.finalists;
                let race = search.to_race(invocation, &choices, cached, finalists, digest);
                match self.lowered(events, invocation, Arc::clone(&race.invocation)) {
                    Ok(invocation) => Ok(InvocationPlan::Race(Race { invocation, ..race })),
                    Err(stopped) => not_begun(stopped, result),
                }
            }
            Err(stopped) => not_begun(stopped, result),
        };
        result.search = Some(search.searched);
        plan
    }

    /// The race of an earlier identical search; its samples may be judged by other rules now.
    fn searched_before(
        &self,
        events: &Events,
        (invocation, digest, key): (&Invocation, String, CacheKey),
        entry: &Arc<Entry>,
        result: &mut OperationResult,
    ) -> Result<InvocationPlan, TuneError> {
        let job = entry.provenance.as_ref().map(|provenance| provenance.job);
        let record = job.map(|job| self.ledger.history(job)).transpose()?.and_then(|history| history.job);
        let Some(record) = record else {
            return Ok(InvocationPlan::Finished(Some(known_before(result, key, entry))));
        };
        let raced = only(invocation, record.candidates.into_iter().map(|candidate| candidate.config));
        match self.lowered(events, invocation, Arc::new(raced)) {
            Ok(invocation) => Ok(InvocationPlan::Race(Race { invocation, search: Some(digest), all_failed: None })),
            Err(stopped) => not_begun(stopped, result),
        }
    }

    /// The identity of a search: the job's digest without candidates, the configs, and how they are searched.
    fn search_digest(&self, identity: &JobIdentity, planned: &PlannedInvocation) -> String {
        let options = &self.options.search;
        let mut hasher = FieldHasher::new("search-v1");
        hasher.field(identity.digest.as_bytes());
        let on_demand = self.lowers(&planned.invocation);
        if on_demand {
            hasher.field(planned.invocation.recorder.as_bytes());
        }
        for candidate in &planned.invocation.candidates {
            hasher.field(candidate.config.as_str().as_bytes());
            // those that are lowered on demand become more from run to run
            let program = candidate.program.as_ref().filter(|_| !on_demand).map(|program| program.semantic_digest);
            hasher.field(program.as_ref().map(|digest| &digest.as_bytes()[..]).unwrap_or_default());
        }
        let space = planned.space.as_ref().map(|space| space.to_digest());
        hasher.field(space.as_ref().map(|digest| &digest.as_bytes()[..]).unwrap_or_default());
        let (evaluations, time) = (options.budget.evaluations, options.budget.time);
        let how = format!(
            "{} {} {evaluations:?} {time:?} {} {}",
            options.kind.name(),
            self.options.race.seed,
            options.rounds,
            options.finalists
        );
        hasher.field(how.as_bytes()).finish().to_string()
    }

    fn begin_search(&self, invocation: &Invocation, choices: &Choices) -> Search {
        let searched = Searched {
            strategy: self.options.search.kind.name().to_owned(),
            seed: self.options.race.seed,
            configs: choices.space.count(),
            sampled: choices.is_sample,
            evaluations: 0,
            reused: 0,
            failed: 0,
            failures: BTreeMap::new(),
            refused: 0,
            best_ratio: None,
            ended: SearchEnd::Budget,
        };
        // the baseline's ratio to itself need not be measured
        let observed = choices.space.find(&invocation.baseline).map(|point| (point, TrialOutcome::Time(1.0)));
        Search { observed: observed.into_iter().collect(), first_failure: None, searched }
    }

    fn run_search(
        &mut self,
        events: &Events,
        invocation: &Invocation,
        choices: &mut Choices,
        key: &CacheKey,
        search: &mut Search,
    ) -> Result<SearchEnd, RaceError> {
        let input_folder = InputFolder::new(invocation, self.registry)?.map_err(RaceError::Failed)?;
        let options = &self.options.search;
        let priors = self.priors(key, invocation)?;
        let OfCompiler { refused, figures } = self.of_compiler(invocation, choices);
        search.searched.refused = refused.len();
        let begin = Instant::now();
        loop {
            let plan = StrategyPlan::new(&choices.space, self.options.race.seed)
                .budget(options.budget.evaluations)
                .priors(&priors)
                // points keep their numbers, and the added ones were not compiled
                .refused(&refused)
                .figures(&figures);
            let mut strategy = start(options.kind, &plan);
            for &(point, outcome) in &search.observed {
                strategy.tell(point, outcome);
            }
            loop {
                if self.cancel.load(Ordering::Relaxed) {
                    return Err(RaceError::Interrupted);
                }
                let is_spent = search.left(&options.budget, begin.elapsed()) == Some(0);
                if is_spent && search.searched.evaluations > 0 {
                    return Ok(SearchEnd::Budget);
                }
                let Some(point) = strategy.ask() else { return Ok(SearchEnd::Exhausted) };
                let config = choices.space.config(point);
                let trying = events.open(Slice::Try { number: search.searched.evaluations + 1, config: &config });
                let tried = if config == invocation.baseline {
                    PairOutcome { outcome: TrialOutcome::Time(1.0), is_new: false, failure: None }
                } else {
                    let pair = only(invocation, [invocation.baseline.clone(), config.clone()]);
                    let pair = self.lowered(events, invocation, Arc::new(pair))?;
                    match not_lowered(&pair, &config).filter(|_| self.lowers(invocation)) {
                        Some(reason) => PairOutcome::refused(reason),
                        None => self.try_pair(events, &pair, &input_folder)?,
                    }
                };
                drop(trying);
                strategy.tell(point, tried.outcome);
                search.take(point, &config, tried);
                let (done, best) = (search.searched.evaluations, search.searched.best_ratio);
                let left = search.left(&options.budget, begin.elapsed());
                let of = left.map(|left| done.saturating_add(left).min(choices.space.count()).max(done));
                events.tell(EventKind::Evaluated { done, of, best });
                if choices.grows_after(search.observed.len()) {
                    break;
                }
            }
            drop(strategy);
            let best: Vec<usize> = search.ranked().into_iter().map(|(_, point)| point).collect();
            choices.grow(&best);
        }
    }

    /// A compiler's figures for the recorded programs, known without the device.
    fn of_compiler(&self, invocation: &Invocation, choices: &Choices) -> OfCompiler {
        let limits = self.core_limits();
        let mut known = OfCompiler::default();
        for candidate in &invocation.candidates {
            let Some(program) = &candidate.program else { continue };
            // the baseline is not checked, because without it the operation fails and reports why
            let is_tried = candidate.config != invocation.baseline;
            let file = || {
                let path = is_tried.then(|| self.registry.checked_program_path(program).ok()).flatten()?;
                Some(ProgramFile::new(path, program.clone()))
            };
            let known_of = self.timer.foreknown(program, &file);
            let Some((of_compiler, point)) = known_of.figures.zip(choices.space.find(&candidate.config)) else {
                continue;
            };
            if known.figures.len() <= point {
                known.figures.resize(point + 1, Vec::new());
            }
            if let Some(figures) = known.figures.get_mut(point) {
                *figures = of_compiler.figures(limits.as_ref());
            }
            if known_of.refused.is_some() {
                known.refused.push(point);
            }
        }
        known
    }

    /// Cached configs of the same operation for any call, device and direction, after those that won in this run: the
    /// nearest first, and the entries themselves before their ties. Behind them what the recorder names.
    pub(super) fn priors(&self, key: &CacheKey, invocation: &Invocation) -> Result<Vec<Config>, TuneError> {
        let mut entries = self.ledger.cache().entries()?;
        entries.retain(|(other, ..)| other.call.op_id == key.call.op_id);
        entries.sort_by_key(|(other, ..)| {
            (other.device != key.device, other.direction != key.direction, other.call.call_key != key.call.call_key)
        });
        let best = entries.iter().map(|(_, entry, _)| &entry.config);
        let tied = entries.iter().filter_map(|(_, entry, _)| entry.provenance.as_ref());
        let winners = self.winners.lock().unwrap_or_else(PoisonError::into_inner);
        let of_run = winners.iter().rev().filter(|(other, _)| other.call.op_id == key.call.op_id);
        let (mut priors, starts): (Vec<Config>, _) = (Vec::new(), invocation.starts());
        let measured = of_run.map(|(_, config)| config).chain(best);
        for config in measured.chain(tied.flat_map(|provenance| &provenance.tie_set)).chain(&starts) {
            if !priors.contains(config) {
                priors.push(config.clone());
            }
        }
        Ok(priors)
    }
}

/// Nothing is raced, for this reason.
fn not_begun(stopped: RaceError, result: &mut OperationResult) -> Result<InvocationPlan, TuneError> {
    match stopped {
        RaceError::Interrupted => {
            result.status = Status::Interrupted;
            "ended by the user; what was tried is kept".clone_into(&mut result.reason);
        }
        RaceError::Failed(failure) => {
            result.reason = failure.to_string();
            result.failure = Some(failure);
        }
        RaceError::Inputs(error) => result.reason = error.to_string(),
        RaceError::Fatal(error) => return Err(error),
    }
    Ok(InvocationPlan::Finished(None))
}

/// Why a config of a call was not lowered.
fn not_lowered(invocation: &Invocation, config: &Config) -> Option<String> {
    invocation.candidates.iter().find(|candidate| candidate.config == *config)?.not_lowered.clone()
}

impl Search {
    fn take(&mut self, point: usize, config: &Config, tried: PairOutcome) {
        self.observed.push((point, tried.outcome));
        self.searched.evaluations += 1;
        self.searched.reused += usize::from(!tried.is_new);
        if let TrialOutcome::Time(ratio) = tried.outcome {
            self.searched.best_ratio = Some(self.searched.best_ratio.map_or(ratio, |best| best.min(ratio)));
        }
        if let Some(Failure { kind, message }) = tried.failure {
            self.first_failure.get_or_insert_with(|| format!("{} with {kind}: {message}", config.to_brief()));
            self.searched.failed += 1;
            *self.searched.failures.entry(kind).or_default() += 1;
        }
    }

    /// How many evaluations remain, if known. Those from the log cost next to nothing and say nothing about the cost of
    /// measuring.
    fn left(&self, budget: &Budget, spent: Duration) -> Option<usize> {
        let Searched { evaluations, reused, .. } = &self.searched;
        let by_count = budget.evaluations.map(|budget| budget.saturating_sub(*evaluations));
        let by_time = budget.evaluations(None).left(evaluations - reused, spent);
        by_count.into_iter().chain(by_time).min()
    }

    /// The points that have a time, each with its ratio, the best first; no strategy asks for one twice.
    fn ranked(&self) -> Vec<(f64, usize)> {
        let timed = self.observed.iter().filter_map(|&(point, outcome)| match outcome {
            TrialOutcome::Time(ratio) => Some((ratio, point)),
            TrialOutcome::Failed => None,
        });
        let mut ranked: Vec<(f64, usize)> = timed.collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ranked
    }

    /// The baseline, the cached configs and the best ones, in an order independent of their times: the same configs are
    /// the same job.
    fn to_race(
        &self,
        invocation: &Invocation,
        choices: &Choices,
        cached: Option<Config>,
        finalists: usize,
        digest: String,
    ) -> Race {
        let is_known = |config: &Config| {
            invocation.candidates.iter().any(|candidate| candidate.config == *config)
                || choices.space.find(config).is_some()
        };
        let best = self.ranked().into_iter().map(|(_, point)| choices.space.config(point));
        let best = best.filter(|config| *config != invocation.baseline).take(finalists);
        let mut configs: Vec<Config> = best.chain(cached.filter(is_known)).collect();
        configs.retain(|config| *config != invocation.baseline);
        configs.sort();
        configs.dedup();
        let first = self.first_failure.as_ref().filter(|_| self.searched.failed == self.searched.evaluations);
        let all_failed = first
            .map(|first| format!("all {} configs that were tried failed, the first {first}", self.searched.failed));
        let raced = only(invocation, std::iter::once(invocation.baseline.clone()).chain(configs));
        Race { invocation: Arc::new(raced), search: Some(digest), all_failed }
    }
}
