//! Which candidates are measured in the next round: most of the time goes to those that may still be the best.

use super::field::{CUT_OFF_ROUNDS, RaceField};

/// Number of leading candidates, the leader included, measured in every round.
const ALWAYS: usize = 3;
/// Every candidate gets at least one sample for this many of the leader's, so that a race of short programs is decided
/// and its tie set is known.
const EIGHTH: usize = 8;

/// Rounds after which a leader that seems better than the baseline, but not significantly, is measured only beside the
/// baseline and the next two, so that every round adds to the proof.
const PROOF: usize = 12;

/// The contenders whose turn it is, the baseline and the leader included. Among N competitors, a candidate of rank r
/// has about N/r samples: every candidate is measured twice, and occasionally later, and the rest of the time goes to
/// the fastest. This drops nobody: a resting candidate returns once those ahead of it turn out slower. One with too few
/// samples for a decision ranks by the best of them, because other processes only ever add time. Before the
/// baseline is kept, two short samples are not enough to rest, and `hidden` ones, which may be far faster, do not rest.
pub(super) fn turns(
    field: &RaceField<'_>,
    contenders: &[usize],
    leader: Option<usize>,
    is_in_doubt: bool,
    hidden: &[usize],
) -> Vec<usize> {
    let count = |candidate: usize| field.differences(candidate, field.baseline).len();
    let is_other = |candidate: &&usize| **candidate != field.baseline && Some(**candidate) != leader;
    // those without a time come first, because nothing is known about them
    let place = |candidate: usize| match field.is_enough(count(candidate)) {
        true => field.difference(candidate, field.baseline),
        false => field.least_difference(candidate, field.baseline),
    };
    let mut ranked: Vec<(f64, usize)> = contenders
        .iter()
        .filter(is_other)
        .map(|&candidate| (place(candidate).unwrap_or(f64::NEG_INFINITY), candidate))
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of_leader = leader.map_or(0, count);
    let keeps_baseline = leader == Some(field.baseline) && field.is_enough(of_leader + 1);
    let wants_proof = is_in_doubt && of_leader >= PROOF;
    // the leader is the first
    let is_next = |&(place, &(_, candidate)): &(usize, &(f64, usize))| {
        let (rank, samples) = (place + 2, count(candidate));
        let is_seen = || samples >= CUT_OFF_ROUNDS || (samples >= 2 && !(keeps_baseline && field.is_short(candidate)));
        let is_due = || !is_seen() || rank * samples <= field.competing || samples * EIGHTH < of_leader;
        rank <= ALWAYS || (keeps_baseline && hidden.contains(&candidate)) || (!wants_proof && is_due())
    };
    let next: Vec<usize> = ranked.iter().enumerate().filter(is_next).map(|(_, &(_, candidate))| candidate).collect();
    let is_in =
        |candidate: &usize| *candidate == field.baseline || Some(*candidate) == leader || next.contains(candidate);
    contenders.iter().copied().filter(is_in).collect()
}
