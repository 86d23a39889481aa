//! First runs, and from them how each candidate is sampled.

use std::time::Duration;

use crate::decision::is_stationary;
use crate::samples::CandidateSamples;
use crate::timer::TimerExt;

use super::RaceError;
use super::measuring::Measuring;
use super::round::RoundFault;
use super::sampling::{ONE_RUN, Sampling, WarmUp};

/// Runs of a candidate in a round: the fastest counts, and the first finds the caches as another program left them.
const RUNS: u32 = 3;
/// What the first run may cost one candidate more than another, as a logarithm, however large the noise: more rounds even
/// out noise, but not this.
const FAIR: f64 = 0.1;
/// If a whole round is one profile, its runs are repeated until those of the fastest candidate last about this long,
/// nanoseconds.
const PROFILED_NS: u64 = 300_000;
/// Maximum number of runs of one candidate in such a round.
const MOST_PROFILED: u64 = 50;
/// Runs of a candidate before the first round, if one profile holds them all.
const PROFILED_WARM_UP: u32 = 3;
/// A program that ran this long is warm.
const WARM_NS: u64 = 1_000_000_000;

/// Minimum length of a sample, as a multiple of the clock's resolution.
const CLOCK_PARTS: u64 = 100;
/// Maximum number of runs in one batch; a coarser clock is unusable.
const MAX_BATCH: u64 = 200;
/// A run that takes this many times the best one's time, plus a second, is not awaited.
const FAR_SLOWER: u64 = 50;
const LEAST_AWAITED: Duration = Duration::from_secs(1);

fn longest_run(best_ns: u64) -> Duration {
    Duration::from_nanos(best_ns.saturating_mul(FAR_SLOWER)).max(LEAST_AWAITED)
}

impl Measuring<'_> {
    /// The baseline's time after its warm-up.
    pub(super) fn warm_up_baseline(&mut self, warm: &mut WarmUp) -> Result<(), RaceError> {
        let times = self.warm(self.referee.identity.baseline, None)?;
        warm.note(self.referee.identity.baseline, &times);
        self.process.timer.cut_off(warm.best.map(longest_run));
        Ok(())
    }

    /// Warms up every other remaining candidate of a wave.
    pub(super) fn warm_up(&mut self, wave: &[usize], warm: &mut WarmUp) -> Result<(), RaceError> {
        let is_warm = self.process.timer.info().can.measure_rounds && self.warm_up_together(wave, warm)?;
        if !is_warm {
            for candidate in self.to_warm_up(wave) {
                let own = self.warm(candidate, warm.best)?;
                warm.note(candidate, &own);
            }
        }
        self.process.timer.cut_off(warm.best.map(longest_run));
        Ok(())
    }

    /// The same under one profile, which costs more than the runs in it. Returns whether it succeeded; otherwise each
    /// candidate runs alone, and those that fail are dropped.
    fn warm_up_together(&mut self, wave: &[usize], warm: &mut WarmUp) -> Result<bool, RaceError> {
        let launches: Vec<(usize, u32)> =
            self.to_warm_up(wave).into_iter().map(|one| (one, PROFILED_WARM_UP)).collect();
        if launches.is_empty() {
            return Ok(true);
        }
        let (samples, fault) = self.whole_round(&launches)?;
        for CandidateSamples { candidate, ns } in samples {
            warm.note(candidate, &ns);
        }
        let Some(RoundFault { failure, .. }) = fault else { return Ok(true) };
        self.find_culprit(failure)?;
        Ok(false)
    }

    /// The competing candidates of a wave, without the baseline, which is warm.
    fn to_warm_up(&self, wave: &[usize]) -> Vec<usize> {
        let active = self.active();
        let needs_warm_up =
            |candidate: &usize| *candidate != self.referee.identity.baseline && active.contains(candidate);
        wave.iter().copied().filter(needs_warm_up).collect()
    }

    /// How each candidate is sampled, given those that the next round measures and the noise floor: differences below
    /// it are not worth three runs. With `--rounds`, and in a check, precision comes first.
    pub(super) fn samplings(&self, warm: &WarmUp, next: &[usize], resolution: f64) -> Vec<Sampling> {
        let told = self.referee.options.rules.min_improvement.max(resolution);
        let may_shorten = !self.referee.terms.is_exact && self.referee.options.rounds.is_none();
        let is_short = may_shorten
            && self.evidence.is_first_run_as_good(RUNS, told / 4.0)
            && self.evidence.first_run_is_fair(RUNS, next, told.min(FAIR));
        let most = if is_short { 1 } else { RUNS };
        let sampling = |(candidate, own): (usize, &Option<u64>)| {
            // the machine may have been slower during one warm-up than during the other
            let own = own.map(|own| self.evidence.fastest_run(candidate).map_or(own, |seen| seen.min(own)));
            self.sampling(own, warm.best, candidate == self.referee.identity.baseline, most)
        };
        warm.fastest.iter().enumerate().map(sampling).collect()
    }

    /// The first runs of one candidate; one far slower than the best so far needs no further warm-up.
    fn warm(&mut self, candidate: usize, best: Option<u64>) -> Result<Vec<u64>, RaceError> {
        let whole = self.process.timer.info().can.measure_rounds;
        let count = if whole { PROFILED_WARM_UP } else { 1 };
        let mut times: Vec<u64> = Vec::new();
        // the others' outputs were compared before; the baseline's are taken once it is warm
        let ran_before = candidate != self.referee.identity.baseline;
        let _slice = self.process.slice_of(candidate);
        loop {
            self.process.check_cancelled()?;
            let Some(more) = self.try_twice(candidate, |timer| timer.run(candidate, count))? else { break };
            let none = more.is_empty();
            times.extend(more);
            let took = times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
            let is_slow = |best| times.iter().all(|&ns| ns as f64 > self.referee.options.rules.cut_off * best as f64);
            if none || whole || took > WARM_NS || best.is_some_and(is_slow) || is_stationary(&times, ran_before) {
                break;
            }
        }
        Ok(times)
    }

    /// At most this many runs of those that can win, the same number for all, because the minimum of more runs is
    /// lower.
    fn sampling(&self, own: Option<u64>, best: Option<u64>, is_baseline: bool, most: u32) -> Sampling {
        let (Some(own), Some(best)) = (own, best) else { return ONE_RUN };
        // every run with cold caches costs a flush, and a batch would warm them
        let needs_warm_up = !self.referee.options.cache_state.is_warm();
        let clock = self.process.timer.info().clock_resolution_ns.filter(|_| !needs_warm_up).unwrap_or(0);
        let batch = clock.saturating_mul(CLOCK_PARTS).div_ceil(best).clamp(1, MAX_BATCH) as u32;
        let is_slower = |times: f64| !is_baseline && own as f64 > times * best as f64;
        let cut_off = self.referee.options.rules.cut_off;
        let run_ns = if is_slower(cut_off.powi(3)) { 0 } else { own };
        let runs = match () {
            () if is_slower(cut_off) => 1,
            // a profile's cost does not grow with the runs in it
            () if self.process.timer.info().can.measure_rounds && !needs_warm_up => {
                PROFILED_NS.div_ceil(best).clamp(u64::from(RUNS), MOST_PROFILED) as u32
            }
            () => most,
        };
        Sampling { runs, batch, run_ns }
    }
}
