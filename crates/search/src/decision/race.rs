//! After each round: which candidates are dropped, and whether the race is decided.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::{anytime_interval, slower};
use super::field::{CUT_OFF_ROUNDS, RaceField};
use super::noise::RoundNoise;
use super::paired::Round;
use super::rules::DecisionRules;
use super::sentinel::{Disturbance, disturbance};
use super::turns::turns;

/// Rounds without a usable time after which a candidate is dropped.
const MAX_WITHOUT_TIME: usize = 3;

/// In fewer rounds than [`CUT_OFF_ROUNDS`], a candidate must be slower by a power of the multiple to be cut off, or by this
/// many times the largest change seen so far, after one round and after two.
const FAR: [f64; 2] = [4.0, 2.0];

/// A gain that no noise may hide if the baseline is to be kept: this part of the baseline's time, or the minimum
/// improvement or what the machine can tell if that is more. Where rounds scatter as usual, the first six exclude it.
const FAR_FASTER: f64 = 0.2;

/// Why a candidate was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// It is significantly slower than the leader.
    Slower,
    /// It takes a multiple of the leader's time.
    CutOff,
    /// Its samples are not times: zero, negative, not finite.
    NoTime,
}

/// A dropped candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
    /// After how many rounds.
    pub after: usize,
}

/// Why no further round is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The leader beats the baseline and every other candidate is dropped.
    Separated,
    /// The leader beats the baseline and no other contender can be faster by the minimum improvement.
    Tied,
    /// No contender can be faster than the baseline by the minimum improvement.
    NothingFaster,
}

/// The state of the race.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceState {
    /// Candidates that are still measured, the baseline included.
    pub contenders: Vec<usize>,
    /// Those of them that are measured in the next round, the baseline included.
    pub next: Vec<usize>,
    /// The fastest of them so far.
    pub leader: Option<usize>,
    /// The dropped candidates.
    pub dropped: BTreeMap<usize, Dropped>,
    /// Why no further round is needed, if so.
    pub settled: Option<Settled>,
    /// Whether the leader seems better than the baseline by the minimum improvement, but not significantly, so that
    /// more rounds could decide; or whether noise may hide far more than that.
    pub is_in_doubt: bool,
    /// Whether nothing beats the baseline, and one of the contenders may still be far faster: the noise is that large, or it
    /// was that much faster in one of too few rounds.
    pub may_hide_gain: bool,
    /// The leader's rounds that count.
    pub leader_rounds: usize,
    /// The rounds that count of the contender with the fewest.
    pub rounds: usize,
    /// What the baseline's repetitions show.
    pub disturbance: Disturbance,
    /// The smallest relative difference that can be detected: 0.01 where times have to differ by a factor of 1.01.
    pub resolution: f64,
    pub(super) noise: RoundNoise,
}

/// The rounds that count: not disturbed, and with a usable time of the baseline.
pub(super) fn counted<'a>(rounds: &'a [Round], disturbance: &Disturbance, baseline: usize) -> Vec<&'a Round> {
    let rounds = rounds.iter().enumerate().filter(|(index, _)| !disturbance.set_aside.contains(index));
    rounds.map(|(_, round)| round).filter(|round| round.sample_ns(baseline).is_some()).collect()
}

/// The rounds that are not set aside.
pub fn counted_rounds(rounds: &[Round]) -> Vec<Round> {
    let set_aside = disturbance(rounds).set_aside;
    let counts = |(index, _): &(usize, &Round)| !set_aside.contains(index);
    rounds.iter().enumerate().filter(counts).map(|(_, round)| round.clone()).collect()
}

/// Whether the race is evaluated after this many rounds: after each of the first eight, then whenever their number has
/// grown by an eighth.
pub fn is_look(rounds: usize) -> bool {
    rounds.checked_ilog2().is_some_and(|power| power < 3 || rounds.is_multiple_of(1 << (power - 3)))
}

/// Looks at the rounds in turn.
///
/// `competing` are the candidates with programs of their own that did not fail, the baseline among them. The
/// probability that the truly fastest one is ever dropped as slower is at most `1 - confidence`: any other one may be
/// the leader at some look, and each gets its part of that error.
pub fn race(rounds: &[Round], competing: &[usize], baseline: usize, rules: &DecisionRules) -> RaceState {
    let disturbance = disturbance(rounds);
    let counted = counted(rounds, &disturbance, baseline);
    let mut contenders = competing.to_vec();
    let mut dropped = BTreeMap::new();
    for look in (1..=counted.len()).filter(|&look| is_look(look)) {
        let seen = counted.get(..look).unwrap_or_default();
        let field = RaceField { seen, baseline, competing: competing.len(), rules };
        let Some(leader) = field.leader(&contenders) else { continue };
        let noise = field.noise(&contenders, leader);
        contenders.retain(|&candidate| {
            if candidate == leader || candidate == baseline {
                return true;
            }
            let reason = out(&field, candidate, leader, &noise);
            dropped.extend(reason.map(|reason| (candidate, Dropped { reason, after: look })));
            reason.is_none()
        });
    }
    let field = RaceField { seen: &counted, baseline, competing: competing.len(), rules };
    let leader = field.leader(&contenders);
    let noise = leader.map(|leader| field.noise(&contenders, leader)).unwrap_or_default();
    let contest = leader.map(|leader| field.noise_of_contest(&contenders, leader)).unwrap_or_default();
    let of_leader = leader.map_or(0, |leader| field.differences(leader, baseline).len());
    let resolution = contest.half_width(of_leader).exp_m1().max(rules.resolution);
    let settled = leader.and_then(|leader| settled(&field, &contenders, leader, [&noise, &contest], resolution));
    let rounds = contenders.iter().map(|&candidate| field.differences(candidate, baseline).len()).min().unwrap_or(0);
    let is_beaten = leader.is_some_and(|leader| field.beats(leader, &noise, resolution));
    let far = (-(1.0 - rules.min_improvement.max(FAR_FASTER)).ln()).max(field.least_told());
    let may_be_far_faster = |candidate: usize| match estimate(&field, candidate, baseline, &contest) {
        Some((middle, width)) => (middle - width).min(least_median(&field, candidate)) <= -far,
        None => is_far_faster_at_best(&field, candidate, far),
    };
    let is_open = !is_beaten && field.is_enough(counted.len());
    let is_hidden = |&candidate: &usize| is_open && candidate != baseline && may_be_far_faster(candidate);
    let hidden: Vec<usize> = contenders.iter().copied().filter(is_hidden).collect();
    let may_hide_gain = !hidden.is_empty();
    let settled = settled.filter(|why| *why != Settled::NothingFaster || !may_hide_gain);
    let seems_better = leader.is_some_and(|leader| field.seems_better(leader, 0.0));
    let is_in_doubt = !is_beaten && (seems_better || may_hide_gain);
    let next = turns(&field, &contenders, leader, is_in_doubt, &hidden);
    let leader_rounds = of_leader;
    RaceState {
        contenders,
        next,
        leader,
        dropped,
        settled,
        is_in_doubt,
        may_hide_gain,
        leader_rounds,
        rounds,
        disturbance,
        resolution,
        noise,
    }
}

fn out(field: &RaceField<'_>, candidate: usize, leader: usize, noise: &RoundNoise) -> Option<DropReason> {
    let differences = field.differences(candidate, leader);
    if differences.is_empty() {
        // it may have been measured in rounds without the leader, and then has times
        let is_timed = field.seen.iter().any(|round| round.sample_ns(candidate).is_some());
        let tried = field.seen.iter().filter(|round| round.samples_ns.get(candidate).is_some_and(Option::is_some));
        return (!is_timed && tried.count() >= MAX_WITHOUT_TIME).then_some(DropReason::NoTime);
    }
    let cut_off = field.rules.cut_off.max(1.0).ln();
    // one or two rounds may have been disturbed, but not that much
    let limit = cut_off * CUT_OFF_ROUNDS.saturating_sub(differences.len() - 1).max(1) as f64;
    let may_be_a_turn = || differences.len() < CUT_OFF_ROUNDS && field.is_short(candidate);
    let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
    let is_far =
        |largest: f64| FAR.get(differences.len() - 1).is_some_and(|times| least > cut_off.max(times * largest));
    if (least > limit && !may_be_a_turn()) || noise.largest().is_some_and(is_far) {
        return Some(DropReason::CutOff);
    }
    let others = field.competing.saturating_sub(1).max(1) as f64;
    (slower(&differences, noise) * (1.0 - field.rules.confidence) >= others).then_some(DropReason::Slower)
}

fn settled(
    field: &RaceField<'_>,
    contenders: &[usize],
    leader: usize,
    [noise, contest]: [&RoundNoise; 2],
    resolution: f64,
) -> Option<Settled> {
    let (baseline, rules) = (field.baseline, field.rules);
    let others = || contenders.iter().copied().filter(|&candidate| candidate != baseline && candidate != leader);
    let cannot_be_faster = |candidate: usize, to: usize| {
        let known = estimate(field, candidate, to, contest);
        known.is_some_and(|(middle, width)| middle - width >= (1.0 - rules.min_improvement).ln())
    };
    let enough = field.is_enough(field.differences(leader, baseline).len());
    if enough && contenders.iter().all(|&candidate| candidate == baseline || cannot_be_faster(candidate, baseline)) {
        return Some(Settled::NothingFaster);
    }
    if !field.beats(leader, noise, resolution) {
        return None;
    }
    match others().next() {
        None => Some(Settled::Separated),
        Some(_) => others().all(|candidate| cannot_be_faster(candidate, leader)).then_some(Settled::Tied),
    }
}

/// Whether a candidate with too few rounds for a decision was faster than the baseline in one of them, and may be faster by
/// this logarithm: the ratio of its best round, less the range of its rounds.
fn is_far_faster_at_best(field: &RaceField<'_>, candidate: usize, by: f64) -> bool {
    let mut differences = field.differences(candidate, field.baseline);
    differences.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (differences.first(), differences.last()) else { return false };
    let is_faster = *least <= (1.0 - field.rules.min_improvement).ln();
    is_faster && least - (most - least) <= -by
}

/// The least that the median of the logarithms of a candidate's time over the baseline's may be, by the ranks of its rounds
/// alone: where they scatter far, their deviation says less.
fn least_median(field: &RaceField<'_>, candidate: usize) -> f64 {
    let differences = field.differences(candidate, field.baseline);
    anytime_interval(&differences, field.rules.confidence).map_or(f64::INFINITY, |interval| interval.low)
}

/// The logarithm of a candidate's time over another one's, and how far it may be from the truth; `None` of too few rounds.
fn estimate(field: &RaceField<'_>, candidate: usize, to: usize, contest: &RoundNoise) -> Option<(f64, f64)> {
    let differences = field.differences(candidate, to);
    let middle = crate::stats::median(&differences).filter(|_| field.is_enough(differences.len()))?;
    // one that scatters more than the others is judged by its own scatter
    let widest = [contest, &RoundNoise::of_one(&differences)].map(|noise| noise.half_width(differences.len()));
    Some((middle, widest.into_iter().fold(0.0, f64::max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After these rounds of a candidate; it rests in others, so that there are six at least.
    fn state(ratios: &[f64]) -> RaceState {
        let samples = ratios.iter().map(|ratio| Some(600.0 * ratio)).chain(std::iter::repeat(None));
        let rounds: Vec<Round> =
            samples.take(ratios.len().max(6)).map(|sample| Round::new(0, vec![Some(600.0), sample])).collect();
        race(&rounds, &[0, 1], 0, &DecisionRules::default())
    }

    /// Times of a short program beside four busy processes on two cores: it meets one of their time slices, or not.
    #[test]
    fn a_short_program_between_time_slices_may_be_far_faster() {
        let between = state(&[7.0, 0.07, 5.5, 6.2, 0.08, 7.8, 0.07, 5.0]);
        assert_eq!((between.leader, between.settled), (Some(0), None));
        assert!(between.may_hide_gain && between.is_in_doubt, "{between:?}");
        // as rounds scatter elsewhere, whether it is slower or not
        for middle in [0.99, 1.0, 1.3] {
            let usual = state(&[1.03, 0.95, 1.06, 1.0, 0.94, 1.04, 0.97, 1.02].map(|ratio| ratio * middle));
            assert!(!usual.may_hide_gain, "{usual:?}");
        }
        // slower than the baseline or far faster, by the time: the median is well known, and wins too few rounds to prove it
        let two_ways = state(&[0.75, 1.02, 0.75, 1.02, 0.75].repeat(12));
        assert!(two_ways.may_hide_gain && two_ways.settled.is_none(), "{two_ways:?}");
        // in fewer rounds than a decision needs, one that was far faster may be
        for few in [&[1.4, 1.1, 0.9][..], &[0.75]] {
            assert!(state(few).may_hide_gain, "{few:?}");
        }
        for few in [&[1.0, 0.95][..], &[1.9, 1.1], &[0.9]] {
            assert!(!state(few).may_hide_gain, "{few:?}");
        }
    }

    /// Two of four candidates rest after two rounds, with the baseline ahead after five.
    #[test]
    fn two_rounds_of_a_short_program_are_too_few_to_keep_the_baseline() {
        let next = |baseline_ns: f64| {
            let sample = |round: usize, index: usize| {
                (index < 3 || round < 2).then_some(baseline_ns * (1.0 + 0.02 * (index + round % 2 * index) as f64))
            };
            let rounds = (0..5).map(|round| Round::new(0, (0..5).map(|index| sample(round, index)).collect()));
            race(&rounds.collect::<Vec<_>>(), &[0, 1, 2, 3, 4], 0, &DecisionRules::default()).next
        };
        assert_eq!(next(3e6), [0, 1, 2, 3, 4]);
        // no time slice multiplies these
        assert_eq!(next(60e6), [0, 1, 2]);
    }
}
