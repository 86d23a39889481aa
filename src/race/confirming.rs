//! Measures winners in processes that did not choose them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::evidence::JobEvidence;
use super::measuring::Measuring;
use super::options::Deadline;
use super::sampling::WarmUp;
use super::{Compiling, RaceError, Referee, Runner};
use crate::counted::counted;
use crate::decision::{ProcessOutcome, ProcessQuestion, ProcessRatio, ProcessSpread, ProcessVerdict};
use crate::timer::Job;
use crate::timer::events::{EventKind, Events, Phase};

/// Rounds of a confirming process: at least these,
const LEAST_ROUNDS: u32 = 8;
/// at most these,
const MOST_ROUNDS: u32 = 24;
/// and until the standard error of the ratio's logarithm is this, because the spread between processes is no smaller,
const PRECISE: f64 = 0.004;
/// or this part of the logarithm itself, because a large gain is seen from afar: half of it would confirm a gain of a
/// tenth in as many processes and twice the time,
const PRECISE_PART: f64 = 0.2;
/// or for this long.
const LONGEST: Duration = Duration::from_secs(1);

/// What fresh processes say about a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// What they say together.
    #[serde(flatten)]
    pub verdict: ProcessVerdict,
    /// Each of them.
    pub processes: Vec<ProcessRatio>,
}

/// Measures candidates beside the baseline in the timer's process, as rounds that confirm, and adds them to the
/// evidence. The caller starts a fresh process before. A candidate that fails is dropped from the evidence.
///
/// # Errors
/// If the baseline or the worker fails, the user ends it, or the log cannot be written.
pub(crate) fn confirm_once<'a>(
    runner: Runner<'a>,
    job: &'a Job,
    referee: Referee<'a>,
    candidates: &'a [usize],
    evidence: &'a mut JobEvidence,
) -> Result<(), RaceError> {
    let measuring = Measuring::of((runner, job), referee, Compiling::new(None, None), evidence);
    Measuring { confirms: Some(candidates), ..measuring }.confirm(candidates)
}

/// Measures candidates in one fresh process after the other until the question is answered about each of them, the
/// processes of a run are used up, or the time is. Returns what is known then of each, `None` of one that failed.
pub(super) fn confirm_each(
    runner: &mut Runner<'_>,
    (job, referee): (&Job, Referee<'_>),
    candidates: &[usize],
    question: &ProcessQuestion,
    evidence: &mut JobEvidence,
) -> Result<Vec<Option<Confirmation>>, RaceError> {
    let until = Deadline::after(referee.options.budget);
    let mut taken = 0;
    loop {
        let known = confirmations(&referee, evidence, candidates, question);
        let is_open =
            |one: &Option<Confirmation>| one.as_ref().is_none_or(|one| one.verdict.outcome == ProcessOutcome::Open);
        let processes = known.iter().flatten().flat_map(|one| &one.processes).copied().collect::<Vec<_>>();
        let open: Vec<usize> = candidates
            .iter()
            .zip(&known)
            .filter(|(candidate, known)| is_open(known) && !evidence.failures.contains_key(candidate))
            .map(|(candidate, _)| *candidate)
            .collect();
        if open.is_empty() || taken >= referee.options.most_processes(&processes) || until.is_over() {
            return Ok(known);
        }
        taken += 1;
        let programs = counted(open.len(), "program");
        runner.events.tell(EventKind::Ahead(&format!("fresh process {taken} measures {programs} again")));
        runner.start_fresh_process()?;
        confirm_once(runner.borrowed(), job, referee, &open, evidence)?;
    }
}

/// What is known of each candidate. The others' processes tell the spread too.
fn confirmations(
    referee: &Referee<'_>,
    evidence: &JobEvidence,
    candidates: &[usize],
    question: &ProcessQuestion,
) -> Vec<Option<Confirmation>> {
    let all: Vec<Vec<ProcessRatio>> =
        candidates.iter().map(|&candidate| referee.processes(evidence, candidate)).collect();
    let spreads = spreads(referee, &all);
    let known = all.into_iter().zip(spreads).zip(candidates).map(|((processes, spreads), candidate)| {
        let is_left = !evidence.failures.contains_key(candidate);
        let verdict = question.judge(&processes, &spreads).filter(|_| is_left)?;
        Some(Confirmation { verdict, processes })
    });
    known.collect()
}

/// The spreads to assume for each of several questions: what is known of the machine and what the other questions'
/// processes say. A question's own processes are no evidence of their own spread.
pub(crate) fn spreads(referee: &Referee<'_>, all: &[Vec<ProcessRatio>]) -> Vec<Vec<ProcessSpread>> {
    let spreads = |(index, own): (usize, &Vec<ProcessRatio>)| {
        let others = all.iter().enumerate().filter(|(other, _)| *other != index);
        ProcessSpread::among(referee.options.spread_of(own), others.map(|(_, processes)| processes.as_slice()))
    };
    all.iter().enumerate().map(spreads).collect()
}

impl Measuring<'_> {
    fn confirm(mut self, candidates: &[usize]) -> Result<(), RaceError> {
        // kept profiles are those of the rounds that chose
        self.process.timer.follow(&Events::default());
        let epoch = self.evidence.next_epoch();
        let measured = self.in_phase(Phase::Confirm, |this| {
            this.process.begin(epoch).map_err(RaceError::Failed)?;
            this.confirm_begun(candidates)
        });
        self.process.timer.end();
        measured
    }

    fn confirm_begun(&mut self, candidates: &[usize]) -> Result<(), RaceError> {
        let mut warm = WarmUp::of(self.process.job.candidates.len());
        let mut order = self.active();
        self.prepare_all(&mut order, None)?;
        self.watch_cores();
        self.warm_up_baseline(&mut warm)?;
        self.warm_up(candidates, &mut warm)?;
        let begin = Instant::now();
        for round in 0..MOST_ROUNDS {
            let active = self.active();
            // a baseline alone is measured for its own time
            let is_left = candidates.is_empty() || candidates.iter().any(|candidate| active.contains(candidate));
            if !is_left || (round >= LEAST_ROUNDS && (begin.elapsed() > LONGEST || self.is_precise(candidates))) {
                break;
            }
            let sampling = self.samplings(&warm, &active, PRECISE);
            self.add_round(&active, &sampling)?;
        }
        Ok(())
    }

    /// Whether this process's rounds tell its ratios well enough.
    fn is_precise(&self, candidates: &[usize]) -> bool {
        let epoch = self.process.epoch();
        candidates.iter().all(|&candidate| {
            let processes = self.referee.processes(self.evidence, candidate);
            let is_enough = |last: &ProcessRatio| last.error <= PRECISE.max(PRECISE_PART * last.ratio.ln().abs());
            processes.last().is_none_or(|last| last.epoch == epoch && is_enough(last))
        })
    }
}
