//! The process as the unit of evidence: what a winner takes of the baseline's time in processes that did not choose it.
//!
//! All rounds of one process share its memory layout and the state of the machine that it met, so they agree with each
//! other and not with the next process. Rounds tell how well one process's ratio is known; only further processes tell
//! how much the ratio itself varies. The estimand is the geometric mean of the ratio over processes.
//!
//! A process's logarithm of the ratio is `x ~ N(μ, σ² + w²)`: `w` is the standard error of its own rounds' median, and
//! `σ` the spread between processes. Two or three processes cannot tell `σ`, so it has a distribution: a scaled inverse
//! χ², or a mixture of them if other calls of the run vary by themselves ([`ProcessSpread::among`]). The e-value is the
//! likelihood of the ratios under `μ ~ N(0, τ²)`, averaged over a few `τ`, over that under `μ = 0`, both averaged over
//! `σ`. It is a martingale over processes, so it may be looked at after each of them (Ville's inequality; Robbins,
//! Statistical methods related to the law of the iterated logarithm, 1970). One process multiplies it by a bounded
//! factor, however fast it was: a state of the machine that every third process meets would else pass as a gain.

use serde::{Deserialize, Serialize};

use super::process_ratio::ProcessRatio;
use super::process_spread::ProcessSpread;
use super::rules::DecisionRules;
use crate::stats::Interval;

/// Standard deviations of the prior of μ, each as likely: an effect of three per cent is as usual as a factor of two.
const EFFECTS: [f64; 3] = [0.03, 0.2, 1.0];
/// Probability that a candidate that is not faster is ever confirmed.
const CONFIRM_ERROR: f64 = 0.01;
/// The e-value to reach.
const NEEDED: f64 = 1.0 / CONFIRM_ERROR;
/// The factor by which one process may raise the e-value: three quiet processes confirm at least, and five of a busy
/// machine. If one process in three is fast by chance, three agree in 3.7 % of all cases, and five in 0.4 %.
const MOST_QUIET: f64 = 4.7;
const MOST_CONTENDED: f64 = 2.55;

/// How a winner fared in processes that did not choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProcessOutcome {
    /// It differs as asked, by the needed e-value.
    Confirmed,
    /// It does not differ by as much as matters: the whole interval says so.
    Refuted,
    /// More processes would tell.
    Open,
}

/// What processes say together about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessVerdict {
    /// Geometric mean over processes of the candidate's time over the baseline's.
    pub ratio: f64,
    /// Interval of that mean, valid after every process.
    pub interval: Interval,
    /// Evidence that the ratio is not one.
    pub e_value: f64,
    /// The verdict.
    pub outcome: ProcessOutcome,
    /// The least gain that as many processes would have confirmed, as a part of the baseline's time; `None` if they are
    /// too few for any.
    pub least_gain: Option<f64>,
}

/// What processes are asked about a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ProcessQuestion {
    /// Whether a difference in either direction is one; otherwise only a gain is.
    pub is_two_sided: bool,
    /// The least difference that matters, as a part of the baseline's time.
    pub least: f64,
    /// The e-value to reach.
    pub needed: f64,
    /// Confidence of the interval.
    pub confidence: f64,
}

impl ProcessQuestion {
    /// Whether a winner gains the minimum improvement.
    pub fn gain(rules: &DecisionRules) -> Self {
        Self { is_two_sided: false, least: rules.min_improvement, needed: NEEDED, confidence: rules.confidence }
    }

    /// Whether a candidate is faster or slower than the baseline, with this confidence for all of `count` candidates.
    pub fn difference(confidence: f64, least: f64, count: usize) -> Self {
        let error = (1.0 - confidence) / count.max(1) as f64;
        Self { is_two_sided: true, least, needed: 1.0 / error.max(f64::MIN_POSITIVE), confidence: 1.0 - error }
    }

    /// Judges the processes of one candidate, whose spread is one of these, each as likely; `None` if there are none.
    pub fn judge(&self, processes: &[ProcessRatio], spreads: &[ProcessSpread]) -> Option<ProcessVerdict> {
        let likelihoods = Likelihoods::of(processes, spreads)?;
        let most = most_evidence(processes);
        let e_value = likelihoods.e_value().min(most);
        let interval = likelihoods.interval(self.confidence);
        let ratio = likelihoods.mean().exp();
        let least_gain = (most >= self.needed).then(|| likelihoods.least_gain(self.needed));
        let outcome = self.outcome(ratio, e_value, &interval);
        Some(ProcessVerdict { ratio, interval, e_value, outcome, least_gain })
    }

    /// The outcome if no more processes follow: a gain that is sure and smaller than asked is none.
    pub fn at_last(&self, verdict: &ProcessVerdict) -> ProcessOutcome {
        match verdict.outcome {
            ProcessOutcome::Open if verdict.e_value >= self.needed => ProcessOutcome::Refuted,
            outcome => outcome,
        }
    }

    fn outcome(&self, ratio: f64, e_value: f64, interval: &Interval) -> ProcessOutcome {
        let is_apart = e_value >= self.needed;
        let (fast, slow) = (1.0 - self.least, 1.0 + self.least);
        match self.is_two_sided {
            true if is_apart => ProcessOutcome::Confirmed,
            true if interval.low > fast && interval.high < slow => ProcessOutcome::Refuted,
            false if is_apart && ratio <= fast => ProcessOutcome::Confirmed,
            false if interval.low > fast => ProcessOutcome::Refuted,
            _ => ProcessOutcome::Open,
        }
    }
}

/// The largest e-value that so many processes can give, however fast the candidate is.
pub fn most_evidence(processes: &[ProcessRatio]) -> f64 {
    let factor = |process: &ProcessRatio| if process.is_contended { MOST_CONTENDED } else { MOST_QUIET };
    processes.iter().map(factor).product()
}

/// The ratios' logarithms under each spread.
struct Likelihoods {
    /// For each spread: the logarithm of its weight and normalising constants, the sum of the precisions, and the
    /// weighted sums of the values and of their squares.
    under: Vec<UnderSpread>,
    mean: f64,
}

#[derive(Clone, Copy, Default)]
struct UnderSpread {
    log_weight: f64,
    precision: f64,
    sum: f64,
    squares: f64,
    /// For each width of the prior what the square of the sum counts, and a logarithm to add: neither depends on the
    /// values, and all of them are integrated many times.
    effects: [(f64, f64); EFFECTS.len()],
}

impl UnderSpread {
    /// Logarithm of the likelihood if the mean is `mu`.
    fn at(&self, mu: f64) -> f64 {
        self.log_weight - 0.5 * (self.squares - 2.0 * mu * self.sum + mu * mu * self.precision)
    }

    /// The same if the mean is anywhere: the terms of a sum over its prior.
    fn anywhere(&self) -> impl Iterator<Item = f64> + Clone {
        let at_zero = self.at(0.0);
        self.effects.iter().map(move |(shrink, log)| at_zero + shrink * self.sum * self.sum + log)
    }

    fn effects(precision: f64) -> [(f64, f64); EFFECTS.len()] {
        EFFECTS.map(|effect| {
            let prior = effect.powi(-2);
            (0.5 / (precision + prior), -0.5 * (precision / prior).ln_1p() - (EFFECTS.len() as f64).ln())
        })
    }
}

impl Likelihoods {
    fn of(processes: &[ProcessRatio], spreads: &[ProcessSpread]) -> Option<Self> {
        let values: Vec<(f64, f64)> = processes.iter().map(|process| (process.log(), process.error)).collect();
        let is_usable = |(log, error): &(f64, f64)| log.is_finite() && error.is_finite();
        let is_known = |spread: &ProcessSpread| spread.deviation > 0.0;
        if values.is_empty() || !values.iter().all(is_usable) || spreads.is_empty() || !spreads.iter().all(is_known) {
            return None;
        }
        let under = spreads.iter().flat_map(ProcessSpread::scales).map(|(sigma, weight)| {
            let precisions = values.iter().map(|(log, error)| (log, 1.0 / (sigma * sigma + error * error)));
            let mut one = UnderSpread { log_weight: weight.ln(), ..UnderSpread::default() };
            for (log, precision) in precisions {
                one.log_weight += 0.5 * precision.ln();
                one.precision += precision;
                one.sum += precision * log;
                one.squares += precision * log * log;
            }
            one.effects = UnderSpread::effects(one.precision);
            one
        });
        let mean = values.iter().map(|(log, _)| log).sum::<f64>() / values.len() as f64;
        Some(Self { under: under.collect(), mean })
    }

    fn mean(&self) -> f64 {
        self.mean
    }

    fn at(&self, mu: f64) -> f64 {
        log_sum(self.under.iter().map(|one| one.at(mu)))
    }

    fn anywhere(&self) -> f64 {
        log_sum(self.under.iter().flat_map(UnderSpread::anywhere))
    }

    fn e_value(&self) -> f64 {
        (self.anywhere() - self.at(0.0)).exp().min(f64::MAX)
    }

    /// The means that the ratios do not refuse, as ratios.
    fn interval(&self, confidence: f64) -> Interval {
        let limit = self.anywhere() + (1.0 - confidence).max(f64::MIN_POSITIVE).ln();
        let is_refused = |mu: f64| self.at(mu) < limit;
        let end =
            |direction: f64| (self.mean + direction * farthest(|step| is_refused(self.mean + direction * step))).exp();
        Interval { low: end(-1.0), high: end(1.0), confidence }
    }

    /// The least gain of all of these processes alike that would be confirmed, as a part of the baseline's time.
    fn least_gain(&self, needed: f64) -> f64 {
        let is_enough = |shift: f64| {
            let alike = |one: &UnderSpread| UnderSpread {
                sum: -shift * one.precision,
                squares: shift * shift * one.precision,
                ..*one
            };
            let under = self.under.iter().map(alike).collect();
            Self { under, mean: -shift }.e_value() >= needed
        };
        -(-farthest(is_enough)).exp_m1()
    }
}

/// The least step above zero at which something holds that holds from there on; at most ten.
fn farthest(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut below, mut above) = (0.0, 10.0);
    for _ in 0..50 {
        let middle = 0.5 * (below + above);
        *if holds(middle) { &mut above } else { &mut below } = middle;
    }
    above
}

/// Logarithm of the sum of exponentials.
fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    // what is smaller by this factor is lost in the last digit
    const LEAST: f64 = -40.0;
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if !largest.is_finite() {
        return largest;
    }
    let parts = logs.map(|log| log - largest).filter(|log| *log > LEAST);
    largest + parts.map(f64::exp).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::super::paired::Round;
    use super::super::process_ratio::process_ratios;
    use super::*;
    use crate::chance::{Draw, Normals};

    /// Processes with these logarithms and a standard error of a fifth of a per cent.
    fn processes(logs: &[f64], is_contended: bool) -> Vec<ProcessRatio> {
        let one = |(epoch, log): (usize, &f64)| {
            let one = ProcessRatio::new(u32::try_from(epoch).unwrap(), log.exp(), 0.002);
            ProcessRatio { is_contended, ..one }
        };
        logs.iter().enumerate().map(one).collect()
    }

    fn verdict(logs: &[f64], is_contended: bool) -> ProcessVerdict {
        let spread = if is_contended { ProcessSpread::CONTENDED } else { ProcessSpread::QUIET };
        among(&[spread], logs, is_contended)
    }

    fn among(spreads: &[ProcessSpread], logs: &[f64], is_contended: bool) -> ProcessVerdict {
        ProcessQuestion::gain(&DecisionRules::default()).judge(&processes(logs, is_contended), spreads).unwrap()
    }

    /// Looks after each of twelve processes, as a run does; how it ended, and after how many.
    fn walk(next: impl FnMut() -> f64, is_contended: bool) -> (ProcessOutcome, usize) {
        let spread = if is_contended { ProcessSpread::CONTENDED } else { ProcessSpread::QUIET };
        walk_among(&[spread], next, is_contended)
    }

    fn walk_among(
        spreads: &[ProcessSpread],
        mut next: impl FnMut() -> f64,
        is_contended: bool,
    ) -> (ProcessOutcome, usize) {
        let mut logs = Vec::new();
        for _ in 0..12 {
            logs.push(next());
            let outcome = among(spreads, &logs, is_contended).outcome;
            if outcome != ProcessOutcome::Open {
                return (outcome, logs.len());
            }
        }
        (ProcessOutcome::Open, logs.len())
    }

    #[test]
    fn the_e_value_is_the_ratio_of_two_integrals() {
        // by brute force over σ and μ, with the densities written out
        let (logs, spread) = ([-0.04, -0.05, -0.03], ProcessSpread::new(0.02, 6.0));
        let density = |value: f64, mean: f64, sigma: f64| {
            (-0.5 * ((value - mean) / sigma).powi(2)).exp() / (sigma * std::f64::consts::TAU.sqrt())
        };
        let likelihood = |mean: f64, sigma: f64| {
            let all = (sigma * sigma + 4e-6_f64).sqrt();
            logs.iter().map(|log| density(*log, mean, all)).product::<f64>()
        };
        let (mut under_one, mut under_any) = (0.0, 0.0);
        for step in 0..4000 {
            let log_sigma = (1e-4_f64).ln() + f64::from(step) * 0.0025;
            let sigma = log_sigma.exp();
            let weight = sigma.powi(-6) * (-3.0 * (0.02 / sigma).powi(2)).exp();
            under_one += weight * likelihood(0.0, sigma);
            for mean in -400..400 {
                let mean = f64::from(mean) * 0.002;
                let prior = EFFECTS.map(|effect| density(mean, 0.0, effect) / 3.0).iter().sum::<f64>();
                under_any += weight * likelihood(mean, sigma) * prior * 0.002;
            }
        }
        let found = Likelihoods::of(&processes(&logs, false), &[spread]).unwrap().e_value();
        assert!((found / (under_any / under_one) - 1.0).abs() < 0.02, "{found} {}", under_any / under_one);
    }

    #[test]
    fn three_quiet_processes_confirm_and_one_never_does() {
        assert_eq!(verdict(&[-2.0], false).outcome, ProcessOutcome::Open);
        assert_eq!(verdict(&[-2.0, -2.0], false).outcome, ProcessOutcome::Open);
        assert_eq!(verdict(&[-0.1, -0.11, -0.1], false).outcome, ProcessOutcome::Confirmed);
        assert_eq!(verdict(&[-0.1; 4], true).outcome, ProcessOutcome::Open);
        assert_eq!(verdict(&[0.05, 0.04, 0.045], false).outcome, ProcessOutcome::Refuted);
        assert_eq!(verdict(&[0.5; 5], true).outcome, ProcessOutcome::Refuted, "slower is no gain");
        let one_odd = verdict(&[-0.3, 0.0, 0.0], false);
        assert!(one_odd.outcome != ProcessOutcome::Confirmed && one_odd.least_gain.unwrap() > 0.04, "{one_odd:?}");
        let question = ProcessQuestion::gain(&DecisionRules::default());
        assert_eq!(question.judge(&[], &[ProcessSpread::QUIET]), None);
        let bad = [ProcessRatio::new(0, f64::NAN, 0.1)];
        assert_eq!(question.judge(&bad, &[ProcessSpread::QUIET]), None);
        assert_eq!(question.judge(&processes(&[0.0], false), &[]), None);
        let both_ways = ProcessQuestion::difference(0.95, 0.01, 2);
        let slower = both_ways.judge(&processes(&[0.2, 0.21, 0.2], false), &[ProcessSpread::QUIET]).unwrap();
        assert_eq!((slower.outcome, slower.e_value > 40.0), (ProcessOutcome::Confirmed, true));
    }

    #[test]
    fn what_gains_nothing_is_not_confirmed() {
        let mut random = Normals::new(Draw::new(1, 0));
        for (is_contended, deviation) in [(false, 0.012), (false, 0.03), (true, 0.12), (true, 0.25)] {
            let mut wrong = 0;
            for _ in 0..1000 {
                let (outcome, _) = walk(|| deviation * random.next(), is_contended);
                wrong += u32::from(outcome == ProcessOutcome::Confirmed);
            }
            assert!(wrong <= 10, "{wrong} of 1000 at {deviation}");
        }
    }

    /// As it was met beside two busy processes: one process in three says 0.75, the others 1.15.
    #[test]
    fn a_state_that_every_third_process_meets_is_no_gain() {
        let mut random = Draw::new(2, 0);
        let mut wrong = 0;
        for _ in 0..1000 {
            let mut next = || if random.below(3) == 0 { 0.75_f64.ln() } else { 1.155_f64.ln() };
            wrong += u32::from(walk(&mut next, true).0 == ProcessOutcome::Confirmed);
        }
        assert!(wrong <= 10, "{wrong} of 1000");
    }

    #[test]
    fn true_gains_are_found_and_the_interval_holds() {
        let mut random = Normals::new(Draw::new(3, 0));
        for (is_contended, deviation, gain) in [(false, 0.012, 0.05), (true, 0.12, 0.4)] {
            let (mut found, mut covered, mut processes) = (0, 0, 0);
            for _ in 0..500 {
                let mu = (1.0_f64 - gain).ln();
                let mut next = || mu + deviation * random.next();
                let (outcome, took) = walk(&mut next, is_contended);
                found += u32::from(outcome == ProcessOutcome::Confirmed);
                processes += took;
                let logs: Vec<f64> = (0..4).map(|_| mu + deviation * random.next()).collect();
                let Interval { low, high, .. } = verdict(&logs, is_contended).interval;
                covered += u32::from(low < mu.exp() && mu.exp() < high);
            }
            assert!(found >= 475 && covered >= 475, "{found} found, {covered} covered at {deviation}");
            assert!(processes <= 500 * 8, "{processes} processes for 500 calls");
        }
    }

    #[test]
    fn other_calls_tell_the_spread() {
        let calm = ProcessSpread::QUIET.and(&processes(&[0.0, 0.001, -0.001, 0.0], false));
        assert!(calm.deviation < ProcessSpread::QUIET.deviation && calm.degrees == 9.0, "{calm:?}");
        let wild = ProcessSpread::QUIET.and(&processes(&[0.3, -0.3, 0.3, -0.3], false));
        assert!(wild.deviation > 0.2, "{wild:?}");
        assert_eq!(ProcessSpread::QUIET.and(&processes(&[0.4], false)), ProcessSpread::QUIET);
        let all: f64 = wild.scales().iter().map(|(_, weight)| weight).sum();
        assert!((all - 1.0).abs() < 1e-12);
    }

    /// As it was met: eight processes of a call agreed on a gain of twelve per cent, and those of another call of the run
    /// differed by a factor of four.
    #[test]
    fn a_call_whose_processes_agree_is_decided_beside_one_that_varies() {
        let quiet = ProcessSpread::QUIET;
        let other = processes(&[-2.6, -1.1, -1.1], false);
        let calm = processes(&[0.001, 0.0, -0.001], false);
        assert_eq!(ProcessSpread::among(quiet, [&calm[..]].into_iter()), [quiet.and(&calm)]);
        let wild = quiet.and(&other);
        let spreads = ProcessSpread::among(quiet, [&other[..]].into_iter());
        assert!(
            spreads.last() == Some(&wild) && spreads.windows(2).all(|two| two[1].deviation <= 4.0 * two[0].deviation)
        );
        let agreed = [0.904, 0.871, 0.869, 0.883, 0.874, 0.884, 0.881, 0.883].map(f64::ln);
        assert_eq!(among(&[wild], &agreed, false).outcome, ProcessOutcome::Open, "the other call alone hides it");
        assert_eq!(among(&spreads, &agreed, false).outcome, ProcessOutcome::Confirmed);
        // and one that varies itself is confirmed no more often by chance
        let mut random = Normals::new(Draw::new(5, 0));
        for deviation in [0.02, 0.1, 0.4] {
            let mut wrong = 0;
            for _ in 0..400 {
                let outcome = walk_among(&spreads, || deviation * random.next(), false).0;
                wrong += u32::from(outcome == ProcessOutcome::Confirmed);
            }
            assert!(wrong <= 4, "{wrong} of 400 at {deviation}");
        }
    }

    #[test]
    fn a_processs_ratio_is_the_median_of_its_rounds() {
        let round = |epoch, own| Round::new(epoch, vec![Some(100.0), Some(own)]);
        let rounds = [round(3, 50.0), round(3, 60.0), round(3, 40.0), round(5, 90.0), round(5, 90.0)];
        let found = process_ratios(&rounds, 1, 0);
        assert_eq!((found.len(), found[0].epoch, found[0].rounds), (1, 3, 3), "two rounds are too few");
        assert!((found[0].ratio - 0.5).abs() < 1e-12 && found[0].error > 0.0);
    }
}
