//! How many rounds a race takes.

use std::time::{Duration, Instant};

use super::measuring::Measuring;
use super::sampling::{Sampling, WarmUp};
use super::{RaceError, RaceGoal};
use crate::decision::{RaceState, is_look};

/// Program time that a race may always take.
const LEAST_TIME: Duration = Duration::from_millis(150);
/// Otherwise it may take this part of the compile time of its programs, next to which it is hardly noticed.
const OF_COMPILING: f64 = 0.15;
/// Factors of that time and of the minimum if a winner is likely but not yet significant: keeping a slower baseline
/// costs every later run.
const IN_DOUBT: u32 = 4;
const IN_DOUBT_LEAST: u32 = 20;
/// Maximum multiple of the usual rounds, if an undecided race has time left.
const MOST_ROUNDS: usize = 20;
/// Maximum number of rounds if only the time ends the race.
const MOST_COMPARED: usize = 100_000;

/// What the last look at the evidence showed.
struct LastLook {
    race_state: RaceState,
    /// Candidates that had failed by then.
    failures: usize,
    sampling: Vec<Sampling>,
}

impl Measuring<'_> {
    /// One round of a wave, beside the baseline and the fastest so far: its result determines what is compiled next.
    pub(super) fn look(&mut self, wave: &[usize], warm: &WarmUp) -> Result<u32, RaceError> {
        let (LastLook { race_state, sampling, .. }, begin) = (self.look_at_evidence(warm), Instant::now());
        let is_beside = |candidate| candidate == self.referee.identity.baseline || Some(candidate) == race_state.leader;
        let mut contenders = race_state.contenders.clone();
        contenders.retain(|&candidate| is_beside(candidate) || wave.contains(&candidate));
        let is_whole = self.add_round(&contenders, &sampling)?;
        self.spent.in_rounds += begin.elapsed();
        Ok(u32::from(is_whole))
    }

    /// Measures rounds until the race is decided or its time used up.
    pub(super) fn measure_rounds(&mut self, warm: &WarmUp) -> Result<u32, RaceError> {
        let (begin, looked) = (Instant::now(), self.spent.running);
        let mut measured = 0;
        // every restart drops at least one candidate or uses up its second chance; disturbed rounds are measured again
        let most = self.most_rounds();
        let mut attempts = most * 3 / 2 + 2 * self.process.job.candidates.len();
        let mut look = self.look_at_evidence(warm);
        loop {
            if self.is_look_due(&look) {
                look = self.look_at_evidence(warm);
            }
            let active = self.next_contenders(&look.race_state);
            let is_over = self.is_decided(&look.race_state, active.len())
                || self.is_enough(&look, most, looked)
                || self.is_late(begin);
            if is_over || attempts == 0 {
                self.spent.in_rounds += begin.elapsed();
                return Ok(measured);
            }
            attempts -= 1;
            measured += u32::from(self.add_round(&active, &look.sampling)?);
        }
    }

    /// Whether the cost of a race hardly grows with its candidates, or its rounds are counted.
    fn is_short(&self) -> bool {
        self.referee.terms.is_exact || self.process.timer.info().can.measure_rounds
    }

    fn most_rounds(&self) -> usize {
        let usual = self.referee.options.usual_rounds() as usize;
        match self.referee.options.budget {
            // a comparison with a time budget uses all of it, to make each ratio as precise as possible
            Some(_) if self.uses_all_time() => MOST_COMPARED,
            _ if self.is_short() => usual,
            _ => usual * MOST_ROUNDS,
        }
    }

    /// Whether only the time ends the race.
    fn uses_all_time(&self) -> bool {
        let terms = &self.referee.terms;
        terms.wants_each_ratio() && self.referee.options.budget.is_some() && !terms.is_exact
    }

    fn look_at_evidence(&self, warm: &WarmUp) -> LastLook {
        let race_state = self.referee.race_state(self.evidence);
        let sampling = self.samplings(warm, &race_state.next, race_state.resolution);
        LastLook { race_state, failures: self.evidence.failures.len(), sampling }
    }

    /// Between the looks only candidates that fail are dropped.
    fn is_look_due(&self, last: &LastLook) -> bool {
        let count = self.evidence.count();
        self.referee.terms.is_exact
            || is_look(count as usize)
            || count == self.referee.options.usual_rounds()
            || last.failures != self.evidence.failures.len()
    }

    /// The candidates of the next round. `--rounds` promises that many rounds of every candidate; a profile's cost
    /// hardly grows with the programs in it.
    fn next_contenders(&self, race_state: &RaceState) -> Vec<usize> {
        let takes_turns = self.referee.options.rounds.is_none()
            && !self.is_short()
            && !matches!(self.referee.terms.goal, RaceGoal::EachRatio { .. });
        if takes_turns { race_state.next.clone() } else { race_state.contenders.clone() }
    }

    /// Whether the race is settled, or has nobody to race. If no other config can run here, the baseline is still
    /// measured for its time; a search learns nothing from that.
    fn is_decided(&self, race_state: &RaceState, active: usize) -> bool {
        let (is_exact, identity) = (self.referee.terms.is_exact, self.referee.identity);
        let possible = self.evidence.count_possible(identity);
        let is_lone = active < 2 && (possible > 1 || (is_exact && identity.distinct().len() > 1));
        is_lone || (race_state.settled.is_some() && !is_exact)
    }

    /// Whether an undecided race has used up its time. Part of the time went to first rounds of new candidates.
    fn is_enough(&self, LastLook { race_state, sampling, .. }: &LastLook, most: usize, looked: Duration) -> bool {
        let options = self.referee.options;
        let (rounds, least) = match options.rounds {
            Some(rounds) => (race_state.rounds, rounds as usize),
            None if race_state.is_in_doubt => (race_state.leader_rounds, options.usual_rounds() as usize),
            None => (race_state.leader_rounds, options.rules.min_rounds),
        };
        if self.uses_all_time() {
            return rounds >= most;
        }
        if self.process.timer.info().can.measure_rounds {
            // a profile costs far more than the programs in it, and a replay asks for the same ones, however fast it
            // compiles
            return rounds >= least.min(most);
        }
        let one_run_each = sampling.iter().map(|sampling| sampling.run_ns).fold(0, u64::saturating_add);
        let of_asked = |rounds: u32| Duration::from_nanos(one_run_each.saturating_mul(u64::from(rounds)));
        let asked = options.rounds.map_or(Duration::ZERO, of_asked);
        let time = LEAST_TIME.max(self.spent.compiling.mul_f64(OF_COMPILING)).max(asked);
        let time = match race_state.is_in_doubt {
            // the first rounds prove nothing
            true => looked + time.saturating_mul(IN_DOUBT).max(LEAST_TIME * IN_DOUBT_LEAST),
            false => time,
        };
        rounds >= least.min(most) && (rounds >= most || self.spent.running >= time)
    }
}
