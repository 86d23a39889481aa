//! What is cached for a call, and which of its figures can be compared with new rounds.

use crate::cache::{Entry, FlagKind, Hit, Provenance};
use crate::config::Config;
use crate::device::Environment;
use crate::digest::Digest;
use crate::measured_by::{CacheState, MeasuredBy};
use crate::registry::Invocation;
use crate::stats::Interval;
use crate::timer::Timer;

use super::CheckedEntry;

/// An entry that applies to a call.
pub(super) struct ExpectedEntry {
    pub(super) entry: CheckedEntry,
    /// What has changed, one line each.
    pub(super) stale: Vec<String>,
}

impl ExpectedEntry {
    /// What a look-up found.
    pub(super) fn of(hit: Hit<'_>, invocation: &Invocation, timer: &dyn Timer, state: &CacheState) -> Self {
        Self::with(hit, |then, entry| {
            let mut others = measured_otherwise(then, timer, state);
            others.extend(other_programs(then, entry, invocation));
            others
        })
    }

    /// The same; `others` says what makes the old ratio incomparable with the new one.
    pub(super) fn with(hit: Hit<'_>, others: impl FnOnce(&Provenance, &Entry) -> Vec<String>) -> Self {
        let device = hit.key().device.clone();
        let Hit { entry, tier, flags, .. } = hit;
        let mut stale: Vec<String> = Vec::new();
        let mut is_comparable = true;
        for flag in flags {
            is_comparable &= flag.kind == FlagKind::StaleEnvironment;
            stale.push(flag.detail);
        }
        if let Some(provenance) = &entry.provenance {
            let others = others(provenance, &entry);
            is_comparable &= others.is_empty();
            stale.extend(others);
        }
        let provenance = entry.provenance.as_ref();
        let comparable = provenance.filter(|_| is_comparable);
        let checked = CheckedEntry {
            device,
            tier,
            config: entry.config.clone(),
            ratio: comparable.map(|provenance| provenance.ratio),
            interval: comparable.map(|provenance| provenance.interval),
            decided_at: provenance.map(|provenance| provenance.decided_at),
        };
        Self { entry: checked, stale }
    }

    /// The ratio's old interval, if it is comparable with the ratio now.
    pub(super) fn interval(&self) -> Option<Interval> {
        self.entry.interval
    }
}

/// What was measured differently then.
pub(super) fn measured_otherwise(then: &Provenance, timer: &dyn Timer, state: &CacheState) -> Vec<String> {
    let mut found: Vec<String> = other_timer(then, timer).into_iter().collect();
    let mut compare = |what: &str, then: &str, now: &str| {
        if then != now {
            found.push(format!("{what} `{then}` then, `{now}` now"));
        }
    };
    let MeasuredBy { source, metric, cache_state, launch, clocks, .. } = &then.measured_by;
    let by = timer.info().measured_by(state);
    compare("clock", source.as_str(), timer.info().source.as_str());
    compare("metric", metric.as_str(), timer.info().metric.as_str());
    compare("caches", cache_state.as_str(), state.as_str());
    // entries from before the choice existed do not record it
    if let Some((then, now)) = launch.as_ref().zip(by.launch.as_ref()) {
        compare("launches", then.as_str(), now.as_str());
    }
    if let Some((then, now)) = clocks.zip(by.clocks) {
        compare("the GPU's clocks", &then.to_string(), &now.to_string());
    }
    found
}

/// Whether a timer of another kind decided: it may have compiled the programs otherwise. What follows the kind, such as
/// a path, says little.
fn other_timer(then: &Provenance, timer: &dyn Timer) -> Option<String> {
    let (decided, measures) = (then.measured_by.timer.as_str(), timer.info().name.as_str());
    let kind = |name: &str| name.split(':').next().map(str::to_owned);
    let with = |name: &str, environment: &Environment| match environment.compiler() {
        Some(compiler) => format!("`{name}` ({compiler})"),
        None => format!("`{name}`"),
    };
    (kind(decided) != kind(measures)).then(|| {
        let (then, now) = (with(decided, &then.environment), with(measures, &timer.info().device.environment));
        format!("decided with the timer {then}, measured with {now}: name one with `--timer`")
    })
}

/// Which programs have changed since.
fn other_programs(then: &Provenance, entry: &Entry, invocation: &Invocation) -> Vec<String> {
    let mut found = Vec::new();
    if then.baseline != invocation.baseline {
        found.push(format!("the baseline was {}, it is {}", then.baseline.to_brief(), invocation.baseline.to_brief()));
    }
    let mut compare = |what: &str, then: Option<Digest>, config: &Config| {
        let now = program_of(invocation, config);
        if then.zip(now).is_some_and(|(then, now)| then != now) {
            found.push(format!("the {what}'s program was different"));
        }
    };
    compare("config", then.semantic_digest, &entry.config);
    compare("baseline", then.baseline_semantic_digest, &invocation.baseline);
    found
}

/// The program of a config, if recorded.
pub(super) fn program_of(invocation: &Invocation, config: &Config) -> Option<Digest> {
    let candidate = invocation.candidates.iter().find(|candidate| candidate.config == *config)?;
    Some(candidate.program.as_ref()?.semantic_digest)
}
