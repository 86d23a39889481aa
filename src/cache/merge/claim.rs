//! The decisions of one call and the choice among them, on texts: most of a provenance need not be read for it.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::device::Environment;
use crate::digest::Digest;
use crate::stats::Interval;

/// How many decisions of a call an entry holds, the one in force among them.
pub const MAX_DECISIONS: usize = 4;

/// All of an entry but its config, each member as its text.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Origin<'a> {
    #[serde(borrow, default)]
    provenance: Option<&'a RawValue>,
    #[serde(borrow, default)]
    peer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    superseded: Vec<Superseded<'a>>,
}

#[derive(Deserialize)]
struct Superseded<'a> {
    #[serde(borrow)]
    config: &'a RawValue,
    #[serde(borrow)]
    provenance: &'a RawValue,
    #[serde(borrow, default)]
    peer: Option<&'a RawValue>,
}

/// What of a provenance the choice is made by.
#[derive(Deserialize, Debug, Clone)]
struct Figures<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow, default = "elapsed")]
    metric: Cow<'a, str>,
    #[serde(default)]
    cache_state: Option<String>,
    #[serde(borrow)]
    environment: &'a RawValue,
    #[serde(borrow)]
    baseline: &'a RawValue,
    #[serde(default)]
    baseline_semantic_digest: Option<Digest>,
    interval: Interval,
    rounds: u32,
    decided_at: u64,
}

fn elapsed() -> Cow<'static, str> {
    Cow::Borrowed("elapsed")
}

/// A config and what is known of it.
#[derive(Debug, Clone)]
pub(super) struct Claim<'a> {
    config: &'a str,
    /// Its text, and what of it is read; none where nothing was measured.
    decision: Option<(&'a str, Figures<'a>)>,
    peer: Option<&'a str>,
}

/// Whether a record's origin holds superseded decisions.
pub(in crate::cache) fn is_superseding(origin: &str) -> bool {
    // a parameter of a config may have that name
    origin.contains("\"superseded\":[")
        && serde_json::from_str::<Origin<'_>>(origin).is_ok_and(|origin| !origin.superseded.is_empty())
}

/// Adds all that the texts of an entry claim; `None` where they are no entry's.
pub(super) fn add_claims<'a>(config: &'a str, origin: &'a str, claims: &mut Vec<Claim<'a>>) -> Option<()> {
    let parsed: Origin<'a> = if origin.is_empty() { Origin::default() } else { serde_json::from_str(origin).ok()? };
    let Origin { provenance, peer, superseded } = parsed;
    claims.push(claim(config, provenance, peer)?);
    for Superseded { config, provenance, peer } in superseded {
        claims.push(claim(config.get(), Some(provenance), peer)?);
    }
    Some(())
}

fn claim<'a>(config: &'a str, provenance: Option<&'a RawValue>, peer: Option<&'a RawValue>) -> Option<Claim<'a>> {
    let decision = match provenance {
        Some(text) => Some((text.get(), serde_json::from_str(text.get()).ok()?)),
        None => None,
    };
    Some(Claim { config, decision, peer: peer.map(RawValue::get) })
}

/// Config and origin of the entry that all claims together make; `None` for no claims.
pub(super) fn settle(mut claims: Vec<Claim<'_>>) -> Option<(String, String)> {
    let decided = claims.iter().any(|claim| claim.decision.is_some());
    claims.retain(|claim| claim.decision.is_some() == decided);
    claims.sort_by(Claim::compare);
    claims.dedup_by(|a, b| a.compare(b) == Ordering::Equal);
    claims.truncate(if decided { MAX_DECISIONS } else { 1 });
    let winner = if decided { best(&claims)? } else { 0 };
    (winner < claims.len()).then(|| {
        let winner = claims.remove(winner);
        (winner.config.to_owned(), winner.to_origin(&claims))
    })
}

/// Which of the decisions is in force; the latest stands first.
fn best(claims: &[Claim<'_>]) -> Option<usize> {
    let decisions = claims.iter().filter_map(|claim| claim.decision.as_ref()).map(|(_, figures)| figures);
    let mut left: Vec<(usize, &Figures<'_>)> = decisions.enumerate().collect();
    let (_, latest) = *left.first()?;
    left.retain(|(_, one)| is_same_environment(one, latest));
    let clock = left.iter().map(|(_, one)| one.clock()).max()?;
    left.retain(|(_, one)| one.clock() == clock);
    let (_, latest) = *left.first()?;
    left.retain(|(_, one)| one.question() == latest.question());
    let found = left.into_iter().min_by(|(a_place, a), (b_place, b)| {
        let by_gain = a.interval.high.total_cmp(&b.interval.high);
        by_gain
            .then_with(|| b.rounds.cmp(&a.rounds))
            .then_with(|| a.width().total_cmp(&b.width()))
            .then_with(|| a_place.cmp(b_place))
    });
    found.map(|(place, _)| place)
}

fn is_same_environment(one: &Figures<'_>, other: &Figures<'_>) -> bool {
    let (one, other) = (one.environment.get(), other.environment.get());
    let read = |text| serde_json::from_str::<Environment>(text).ok();
    one == other || read(one).zip(read(other)).is_some_and(|(one, other)| one.differences(&other).is_empty())
}

impl Figures<'_> {
    fn clock(&self) -> u8 {
        match &*self.source {
            "device-profile" => 2,
            "host-wall" => 1,
            _ => 0,
        }
    }

    fn question(&self) -> (&str, Option<Digest>, &str, Option<&str>) {
        (self.baseline.get(), self.baseline_semantic_digest, &self.metric, self.cache_state.as_deref())
    }

    fn width(&self) -> f64 {
        self.interval.high - self.interval.low
    }
}

impl Claim<'_> {
    /// The latest first; equal only where all is equal.
    fn compare(&self, other: &Self) -> Ordering {
        let order = |claim: &Self| claim.decision.as_ref().map_or(0, |(_, figures)| figures.decided_at);
        let text = |claim: &Self| claim.decision.as_ref().map(|(text, _)| *text);
        Reverse(order(self))
            .cmp(&Reverse(order(other)))
            .then_with(|| self.peer.is_none().cmp(&other.peer.is_none()))
            .then_with(|| self.config.cmp(other.config))
            .then_with(|| text(self).cmp(&text(other)))
            .then_with(|| self.peer.cmp(&other.peer))
    }

    /// The origin of a record, spelled as the snapshot's writer spells it.
    fn to_origin(&self, superseded: &[Claim<'_>]) -> String {
        let mut members = self.members();
        if !superseded.is_empty() {
            let each = superseded.iter().map(|claim| {
                let members = std::iter::once(format!("\"config\":{}", claim.config)).chain(claim.members());
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            });
            members.push(format!("\"superseded\":[{}]", each.collect::<Vec<_>>().join(",")));
        }
        if members.is_empty() { String::new() } else { format!("{{{}}}", members.join(",")) }
    }

    fn members(&self) -> Vec<String> {
        let provenance = self.decision.as_ref().map(|(text, _)| format!("\"provenance\":{text}"));
        let peer = self.peer.map(|text| format!("\"peer\":{text}"));
        provenance.into_iter().chain(peer).collect()
    }
}
