//! The decisions of one call and the choice among them.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use serde_json::value::RawValue;

use crate::cache::StoreError;
use crate::cache::{EntryOf, Provenance, SupersededOf};
use crate::cache::{EntryRow, MergedText};
use crate::config::Config;
use crate::digest::Digest;
use crate::measured_by::{CacheState, Clocks, LaunchMode, MeasuredBy, Metric, Source};
use crate::stats::Interval;

/// How many decisions of a call an entry holds, including the one in force.
pub const MAX_DECISIONS: usize = 4;

/// An entry with its members as text.
type RawEntry<'a> = EntryOf<&'a RawValue, &'a RawValue, &'a RawValue>;

/// A config and its provenance.
#[derive(Debug)]
struct Claim<'a> {
    config: &'a RawValue,
    /// As text, and parsed; `None` if nothing was measured.
    decision: Option<(&'a RawValue, Provenance)>,
    peer: Option<&'a RawValue>,
}

/// The merge of one call's rows, whose texts are not all the same.
pub(super) fn settle<'a>(rows: &[EntryRow<'a>], texts: &[Cow<'_, str>]) -> Result<EntryRow<'a>, StoreError> {
    let mut claims = Vec::new();
    let mut last = rows.first();
    for (text, row) in latest(rows, texts) {
        add_claims(text, &mut claims).ok_or_else(|| row.unreadable())?;
        last = Some(row);
    }
    let unreadable = |row: &EntryRow<'_>| row.unreadable();
    match (choose(claims), last) {
        (Some(settled), Some(row)) => Ok(row.settled(settled)),
        (_, row) => {
            Err(row.map_or_else(|| StoreError::damaged("memory".as_ref(), "a call without an entry"), unreadable))
        }
    }
}

/// The rows that matter, each text once: a single decision does not if there are enough later ones.
fn latest<'t, 'r, 'a>(rows: &'r [EntryRow<'a>], texts: &'t [Cow<'_, str>]) -> Vec<(&'t str, &'r EntryRow<'a>)> {
    let mut distinct: Vec<(&str, &EntryRow<'_>)> = texts.iter().map(|text| &**text).zip(rows).collect();
    distinct.sort_by(|a, b| a.0.cmp(b.0));
    distinct.dedup_by(|a, b| a.0 == b.0);
    // replayed ones must not push measured ones out
    let alone: Vec<bool> = distinct.iter().map(|(_, row)| !row.may_supersede() && !row.may_be_private()).collect();
    let mut times: Vec<u64> =
        distinct.iter().zip(&alone).filter(|(_, alone)| **alone).map(|((_, row), _)| row.decided()).collect();
    times.sort_unstable_by_key(|time| Reverse(*time));
    if let Some(least) = times.get(MAX_DECISIONS - 1) {
        let mut alone = alone.into_iter();
        distinct.retain(|(_, row)| alone.next() == Some(false) || row.decided() >= *least);
    }
    distinct
}

/// Adds all decisions in an entry's text; `None` if it is not an entry's.
fn add_claims<'a>(text: &'a str, claims: &mut Vec<Claim<'a>>) -> Option<()> {
    let RawEntry { config, provenance, peer, superseded } = serde_json::from_str(text).ok()?;
    claims.push(Claim::new(config, provenance, peer)?);
    for SupersededOf { config, provenance, peer } in superseded {
        claims.push(Claim::new(config, Some(provenance), peer)?);
    }
    Some(())
}

/// The entry merged from all claims; `None` without claims.
fn choose(mut claims: Vec<Claim<'_>>) -> Option<MergedText> {
    let evidence = claims.iter().map(Claim::evidence).max()?;
    claims.retain(|claim| claim.evidence() == evidence);
    let decided = evidence > ClaimEvidence::None;
    claims.sort_by(Claim::compare);
    claims.dedup_by(|a, b| a.compare(b) == Ordering::Equal);
    claims.truncate(if decided { MAX_DECISIONS } else { 1 });
    let winner = if decided { best(&claims)? } else { 0 };
    if winner >= claims.len() {
        return None;
    }
    let Claim { config, decision, peer } = claims.remove(winner);
    let superseded = claims.iter().filter_map(|claim| {
        let (provenance, _) = claim.decision.as_ref()?;
        Some(SupersededOf { config: claim.config, provenance: *provenance, peer: claim.peer })
    });
    let entry = RawEntry {
        config,
        provenance: decision.as_ref().map(|(text, _)| *text),
        peer,
        superseded: superseded.collect(),
    };
    Some(MergedText {
        text: serde_json::to_string(&entry).ok()?,
        config_bytes: config.get().len(),
        decided: decision.map_or(0, |(_, provenance)| provenance.decided_at.saturating_add(1)),
    })
}

/// Which of the decisions is in force; the latest comes first.
fn best(claims: &[Claim<'_>]) -> Option<usize> {
    let decisions = claims.iter().filter_map(|claim| claim.decision.as_ref()).map(|(_, provenance)| provenance);
    let mut left: Vec<(usize, &Provenance)> = decisions.enumerate().collect();
    let (_, latest) = *left.first()?;
    left.retain(|(_, one)| one.environment.differences(&latest.environment).is_empty());
    let clock = left.iter().map(|(_, one)| clock(one)).max()?;
    left.retain(|(_, one)| self::clock(one) == clock);
    let (_, latest) = *left.first()?;
    left.retain(|(_, one)| question(one) == question(latest));
    let found = left.into_iter().min_by(|(a_place, a), (b_place, b)| {
        let by_gain = a.interval.high.total_cmp(&b.interval.high);
        by_gain
            .then_with(|| b.rounds.cmp(&a.rounds))
            .then_with(|| width(a.interval).total_cmp(&width(b.interval)))
            .then_with(|| a_place.cmp(b_place))
    });
    found.map(|(place, _)| place)
}

/// What a claim rests on, from the weakest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimEvidence {
    None,
    Replayed,
    Measured,
}

fn clock(provenance: &Provenance) -> u8 {
    match provenance.measured_by.source {
        Source::DeviceProfile => 2,
        Source::HostWall => 1,
        _ => 0,
    }
}

/// The question that a decision answers; decisions with other questions are not comparable.
type DecisionQuestion<'a> =
    (&'a Config, Option<Digest>, &'a Metric, &'a CacheState, Option<&'a LaunchMode>, Option<Clocks>);

fn question(one: &Provenance) -> DecisionQuestion<'_> {
    let MeasuredBy { metric, cache_state, launch, .. } = &one.measured_by;
    let clocks = one.measured_by.set_clocks();
    (&one.baseline, one.baseline_semantic_digest, metric, cache_state, launch.as_ref(), clocks)
}

fn width(interval: Interval) -> f64 {
    interval.high - interval.low
}

impl<'a> Claim<'a> {
    fn new(config: &'a RawValue, provenance: Option<&'a RawValue>, peer: Option<&'a RawValue>) -> Option<Self> {
        let decision = match provenance {
            Some(text) => Some((text, serde_json::from_str(text.get()).ok()?)),
            None => None,
        };
        Some(Self { config, decision, peer })
    }

    fn evidence(&self) -> ClaimEvidence {
        match &self.decision {
            None => ClaimEvidence::None,
            Some((_, provenance)) if provenance.measured_by.source == Source::Replay => ClaimEvidence::Replayed,
            Some(_) => ClaimEvidence::Measured,
        }
    }

    /// The latest first; equal only where all is equal.
    fn compare(&self, other: &Self) -> Ordering {
        let order = |claim: &Self| claim.decision.as_ref().map_or(0, |(_, provenance)| provenance.decided_at);
        let text = |claim: &Self| claim.decision.as_ref().map(|(text, _)| text.get());
        Reverse(order(self))
            .cmp(&Reverse(order(other)))
            .then_with(|| self.peer.is_none().cmp(&other.peer.is_none()))
            .then_with(|| self.config.get().cmp(other.config.get()))
            .then_with(|| text(self).cmp(&text(other)))
            .then_with(|| self.peer.map(RawValue::get).cmp(&other.peer.map(RawValue::get)))
    }
}
