//! A best config and its provenance: the schema of an entry in every store and file.

use serde::{Deserialize, Serialize};

use crate::batch::BatchAxis;
use crate::config::Config;
use crate::device::Environment;
use crate::digest::Digest;
use crate::measured_by::{MeasuredBy, Source};
use crate::stats::Interval;

/// The config to use for a call, with its provenance.
pub type Entry = EntryOf<Config, Provenance, Peer>;

/// A decision beside the one in force.
pub type Superseded = SupersededOf<Config, Provenance, Peer>;

/// The members of an [`Entry`], each in the form that its reader needs: parsed, borrowed from an entry, or as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryOf<C, P, T> {
    /// The config.
    pub config: C,
    /// How it was found; absent for an entry that was written by hand.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub provenance: Option<P>,
    /// The other tool's records of an imported entry, so that it can be exported unchanged.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub peer: Option<T>,
    /// Superseded decisions of the same call from a merge, the latest first.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<SupersededOf<C, P, T>>,
}

/// The members of a [`Superseded`] decision, likewise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupersededOf<C, P, T> {
    /// Its config.
    pub config: C,
    /// How it was found.
    pub provenance: P,
    /// The other tool's records of it.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub peer: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

/// Another tool's own records of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The tool.
    pub format: String,
    /// Its records; several if it distinguishes calls that share one label.
    pub records: Vec<PeerRecord>,
}

/// One record of another tool, verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Its index in the file, because the order of records may matter to the tool.
    pub place: u64,
    /// The tool's name of the call.
    pub key: String,
    /// The tool's data on it.
    pub value: String,
    /// What the file held besides its calls, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<String>,
}

/// How an entry was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The job whose samples decided it, in the sample log.
    pub job: Digest,
    /// How. The compiler is the environment's.
    #[serde(flatten)]
    pub measured_by: MeasuredBy,
    /// The `vmap`s around the call that was measured, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchAxis>,
    /// The software under which it was measured.
    pub environment: Environment,
    /// The config in use without tuning.
    pub baseline: Config,
    /// Median of the baseline, nanoseconds.
    pub baseline_ns: f64,
    /// Median of this config, nanoseconds.
    pub best_ns: f64,
    /// This config's time over the baseline's: the geometric mean over the processes that confirmed it, each of whose
    /// ratios is the median over its rounds; of an entry without such processes, the median over all rounds.
    pub ratio: f64,
    /// Interval of that ratio.
    pub interval: Interval,
    /// Paired rounds behind it.
    pub rounds: u32,
    /// Processes that confirmed it, besides the one that chose it. Ratio and interval are theirs, if there are any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processes: u32,
    /// Candidates that were measured.
    pub measured: u32,
    /// Candidates that failed.
    pub failed: u32,
    /// Configs that cannot be distinguished from the best.
    #[serde(default)]
    pub tie_set: Vec<Config>,
    /// Digest of the best config's program without locations and names; if it differs, the kernel changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_digest: Option<Digest>,
    /// The baseline's, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_semantic_digest: Option<Digest>,
    /// Digest of the search that picked the measured configs: its space, strategy, seed and budget. Absent if all
    /// configs were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Candidates that were not compiled because the predicted gain was too small.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untried: u32,
    /// Probability that one of those is better by the minimum improvement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried_chance: Option<f64>,
    /// Probability that a fresh run over the same candidates publishes the same config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stability: Option<f64>,
    /// Program and version that decided.
    pub tool: String,
    /// When, seconds since 1970.
    pub decided_at: u64,
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Entry {
    /// An entry without provenance.
    pub fn new(config: Config) -> Self {
        Self { config, provenance: None, peer: None, superseded: Vec::new() }
    }

    /// The entry as JSON, as stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the samples that decided it were replayed: then this device may never have run it. Such an entry answers
    /// only where that was asked for, and is neither signed nor published.
    pub fn is_replayed(&self) -> bool {
        self.provenance.as_ref().is_some_and(|provenance| provenance.measured_by.source == Source::Replay)
    }

    /// Whether others may get it as what this device measured: neither replayed samples decided it nor those of a busy
    /// machine.
    pub fn is_publishable(&self) -> bool {
        !self.is_replayed() && self.provenance.as_ref().is_none_or(|provenance| provenance.measured_by.load.is_quiet())
    }

    /// Digest of the search that found it, if any.
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

/// The prefix of an entry's text before its config.
const OPENING: &str = "{\"config\":";

/// The JSON of an entry in two parts: many entries share a config, which can be read without the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryText<'a> {
    /// The config as canonical JSON.
    pub(super) config: &'a str,
    /// What follows it, up to the end.
    pub(super) rest: &'a str,
}

impl<'a> EntryText<'a> {
    /// A text whose config has this many bytes.
    pub(super) fn split(text: &'a str, config_bytes: usize) -> Option<Self> {
        let (config, rest) = text.strip_prefix(OPENING)?.split_at_checked(config_bytes)?;
        Some(Self { config, rest })
    }

    /// The whole.
    pub(super) fn to_text(self) -> String {
        [OPENING, self.config, self.rest].concat()
    }

    /// The entry; `None` if the text is not an entry's, or its config differs.
    pub(super) fn to_entry(self) -> Option<Entry> {
        serde_json::from_str(&self.to_text()).ok().filter(|entry: &Entry| entry.config.as_str() == self.config)
    }
}

/// Appends what follows the config in [`Entry::to_text`].
pub(super) fn put_rest(entry: &Entry, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let Entry { config: _, provenance, peer, superseded } = entry;
    let superseded = superseded.iter().map(|one| SupersededOf {
        config: Some(&one.config),
        provenance: &one.provenance,
        peer: one.peer.as_ref(),
    });
    let rest = EntryOf {
        config: None,
        provenance: provenance.as_ref(),
        peer: peer.as_ref(),
        superseded: superseded.collect(),
    };
    let begin = out.len();
    serde_json::to_writer(&mut *out, &rest)?;
    out.drain(begin..begin + OPENING.len() + "null".len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_snapshot_is_that_of_every_store() {
        let provenance = format!(
            r#"{{"job":"{}","timer":"pjrt","source":"host-wall","environment":{{}},"baseline":{{"z":1.0,"a":[]}},
            "baseline_ns":2.5,"best_ns":1,"ratio":0.4,"interval":{{"low":0.3,"high":0.5,"confidence":0.95}},"rounds":8,
            "measured":2,"failed":0,"tool":"t","decided_at":7}}"#,
            "0f".repeat(32)
        );
        let peer = r#"{"format":"f","records":[{"place":1,"key":"k","value":"\"größe\""}]}"#;
        let config = r#"{"z":{"y":1e3,"b":null},"größe":"\n","superseded":[]}"#;
        for rest in [
            String::new(),
            format!(r#","provenance":{provenance}"#),
            format!(r#","peer":{peer}"#),
            format!(
                r#","provenance":{provenance},"superseded":[{{"config":{{}},"provenance":{provenance},"peer":{peer}}}]"#
            ),
        ] {
            let entry: Entry = serde_json::from_str(&format!("{{\"config\":{config}{rest}}}")).unwrap();
            let mut out = b"before".to_vec();
            put_rest(&entry, &mut out).unwrap();
            let whole = entry.to_text();
            let text = EntryText::split(&whole, entry.config.as_str().len()).unwrap();
            assert_eq!((text.config, text.rest.as_bytes()), (entry.config.as_str(), &out[6..]));
            assert_eq!((text.to_text(), text.to_entry()), (whole.clone(), Some(entry.clone())));
        }
        assert_eq!(EntryText::split("{\"config\":{}}", 1).unwrap().to_entry(), None, "the config ends elsewhere");
        let injected = EntryText { config: "{},\"peer\":null", rest: "}" };
        assert_eq!(injected.to_entry(), None, "more than a config");
        assert!(EntryText::split("{ \"config\":{}}", 2).is_none());
        assert!(EntryText::split("{\"config\":{}}", 4).is_none());
    }

    /// As version 0.1.0 wrote them before clocks had types of their own, and with names of a later one.
    #[test]
    fn entries_are_written_as_they_were_stored() {
        for how in [
            r#""timer":"pjrt","source":"host-wall","metric":"elapsed""#,
            r#""timer":"jax","source":"device-profile","metric":"busy","cache_state":"cold""#,
            r#""timer":"own","source":"sundial","metric":"shade","cache_state":"dusk""#,
        ] {
            let stored = format!(
                concat!(
                    r#"{{"config":{{"b":4}},"provenance":{{"job":"{}",{how},"environment":{{"platform_version":"x"}},"#,
                    r#""baseline":{{"b":8}},"baseline_ns":2.5,"best_ns":1.0,"ratio":0.4,"#,
                    r#""interval":{{"low":0.3,"high":0.5,"confidence":0.95}},"rounds":8,"measured":2,"failed":0,"#,
                    r#""tie_set":[],"tool":"t","decided_at":7}}}}"#
                ),
                "0f".repeat(32),
                how = how
            );
            assert_eq!(serde_json::from_str::<Entry>(&stored).unwrap().to_text(), stored);
        }
    }
}
