//! A best config and where it comes from.

use serde::{Deserialize, Serialize};

use crate::batch::BatchAxis;
use crate::config::Config;
use crate::device::Environment;
use crate::digest::Digest;
use crate::stats::Interval;

/// The config to use for a call, with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The config.
    pub config: Config,
    /// How it was found; absent for an entry that was written by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// What another tool's file said of it, for an entry that was imported and is to leave again unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// Decisions of the same call that a merge found and did not follow, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<Superseded>,
}

/// A decision beside the one in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Superseded {
    /// Its config.
    pub config: Config,
    /// How that was found.
    pub provenance: Provenance,
    /// What another tool's file said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
}

/// Another tool's own records of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The tool.
    pub format: String,
    /// Its records; several where it tells calls apart that have one label.
    pub records: Vec<PeerRecord>,
}

/// One record of another tool, word for word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Its place in the file: the order of records may matter to the tool.
    pub place: u64,
    /// The tool's name of the call.
    pub key: String,
    /// What the tool knows of it.
    pub value: String,
}

/// How an entry was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The job whose samples decided it, in the sample log.
    pub job: Digest,
    /// Timer.
    pub timer: String,
    /// The samples' clock.
    pub source: String,
    /// What of an execution is its duration: `elapsed`, `span` or `busy`.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// What every timed run found in the caches: `cold`, or absent for warm ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_state: Option<String>,
    /// The `vmap`s around the call that was measured, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchAxis>,
    /// The software that it was measured under.
    pub environment: Environment,
    /// The config in use without tuning.
    pub baseline: Config,
    /// Median of the baseline, nanoseconds.
    pub baseline_ns: f64,
    /// Median of this config, nanoseconds.
    pub best_ns: f64,
    /// Median of this config's time over the baseline's, round by round.
    pub ratio: f64,
    /// Interval of that ratio.
    pub interval: Interval,
    /// Paired rounds behind it.
    pub rounds: u32,
    /// Candidates that were measured.
    pub measured: u32,
    /// Candidates that failed.
    pub failed: u32,
    /// Configs that cannot be told from the best.
    #[serde(default)]
    pub tie_set: Vec<Config>,
    /// The best config's program without locations and names: another one means that the kernel changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_digest: Option<Digest>,
    /// The baseline's, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_semantic_digest: Option<Digest>,
    /// Digest of the search that found the configs which were measured: its space, strategy, seed and budget. Absent where
    /// all configs were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Program and version that decided.
    pub tool: String,
    /// When, seconds since 1970.
    pub decided_at: u64,
}

/// What entries were decided by before they said so.
fn elapsed() -> String {
    "elapsed".to_owned()
}

impl Entry {
    /// An entry that says nothing of where its config comes from.
    pub fn new(config: Config) -> Self {
        Self { config, provenance: None, peer: None, superseded: Vec::new() }
    }

    /// The entry as JSON, as stores keep it.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Digest of the search that found it, where one did.
    pub fn search(&self) -> Option<&str> {
        self.provenance.as_ref()?.search.as_deref()
    }

    /// Baseline's time over this config's, with its interval; above one is faster.
    pub fn speed_up(&self) -> Option<(f64, Interval)> {
        let provenance = self.provenance.as_ref()?;
        let Interval { low, high, confidence } = provenance.interval;
        Some((1.0 / provenance.ratio, Interval { low: 1.0 / high, high: 1.0 / low, confidence }))
    }
}
