//! Which calls of a module have a config for a device.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cache::{COMPILER_OPTIONS, CacheKey, FlagKind, Hit, Lookup, StoreError, TieredCache};
use crate::call::{Direction, split_op_id};
use crate::config::Config;
use crate::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};
use crate::digest::Digest;
use crate::hlo::{Evidence, FoundLabel, Label, Scan};
use crate::matching::Matching;

/// The call of a label, and its config.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelledCall {
    /// The known part of the label: the operation, and the call key if there is one.
    #[serde(flatten)]
    pub label: Label,
    /// How much of the label the module kept.
    pub evidence: Evidence,
    /// How often the module has it.
    pub occurrences: u64,
    /// Whether there is a config.
    pub covered: bool,
    /// The device that the config was tuned for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
    /// Caveats, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Every call of a module.
#[derive(Debug, Clone, PartialEq)]
pub struct Coverage {
    /// The calls, in the order of their labels.
    pub calls: Vec<LabelledCall>,
}

impl Coverage {
    /// How many of the calls have a config.
    pub fn covered(&self) -> usize {
        self.calls.iter().filter(|call| call.covered).count()
    }

    /// Whether at least this fraction of the calls has one.
    pub fn has(&self, part: f64) -> bool {
        // rounded up: 90 % of 11 calls are 10
        self.covered() as f64 >= (self.calls.len() as f64 * part - 1e-9).ceil()
    }
}

/// Why a text does not identify a device of a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// There is none.
    #[error("no entry belongs to a device with `{text}` in its name; `cache ls` lists them")]
    None {
        /// The text.
        text: String,
    },
    /// There are several.
    #[error("`{text}` is in the name of {} and of {}; `--for` needs more of the name", .devices[0], .devices[1])]
    Several {
        /// The text.
        text: String,
        /// The first two.
        devices: Box<[DeviceIdentity; 2]>,
    },
    /// A tier cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The one device of a cache whose name contains a text; its software is unknown.
///
/// # Errors
/// If no device or several match, or a tier cannot be read.
pub fn device_named(cache: &TieredCache, text: &str) -> Result<DeviceFingerprint, DeviceNameError> {
    let devices: BTreeSet<DeviceIdentity> = cache.entries()?.into_iter().map(|(key, ..)| key.device).collect();
    let mut named = devices.into_iter().filter(|device| device.to_string().contains(text));
    match (named.next(), named.next()) {
        (Some(identity), None) => Ok(DeviceFingerprint { identity, environment: Environment::default() }),
        (Some(one), Some(other)) => {
            Err(DeviceNameError::Several { text: text.to_owned(), devices: Box::new([one, other]) })
        }
        (None, _) => Err(DeviceNameError::None { text: text.to_owned() }),
    }
}

/// The tiers to search, and the device.
#[derive(Clone, Copy)]
pub struct CoverageOf<'a> {
    /// The tiers.
    pub cache: &'a TieredCache,
    /// The device that runs the module.
    pub device: &'a DeviceFingerprint,
    /// Whether the device is at hand, with its software.
    pub is_here: bool,
    /// Which devices' results may be used.
    pub match_mode: MatchMode,
}

impl CoverageOf<'_> {
    /// Looks up every call of a module's labels. A truncated label represents the recordings that it matches; without
    /// recordings, pass an empty matching.
    ///
    /// # Errors
    /// If a tier cannot be read.
    pub fn coverage(&self, scan: &Scan, matching: &Matching) -> Result<Coverage, StoreError> {
        let mut calls = Vec::new();
        for (index, found) in scan.labels.iter().enumerate() {
            let of_label =
                matching.matched.iter().filter(|matched| matched.labels.iter().any(|label| label.index == index));
            let recorded: Vec<_> = of_label.map(|matched| &matched.invocation).collect();
            for invocation in &recorded {
                let call = self.call(found, &invocation.call.op_id, &invocation.call.call_key)?;
                let why = invocation.runnable().err().filter(|_| !call.covered);
                calls.push(LabelledCall { reason: why.map(|why| why.to_string()).or(call.reason), ..call });
            }
            if recorded.is_empty() {
                calls.push(self.unrecorded(found, matching, index)?);
            }
        }
        Ok(Coverage { calls })
    }

    /// The compiler options of the module itself, by the digest of its StableHLO text; `None` if no device has any,
    /// since most modules are not tuned so.
    ///
    /// # Errors
    /// If a tier cannot be read.
    pub fn compiler_options(&self, digest: &Digest) -> Result<Option<LabelledCall>, StoreError> {
        let key = digest.to_string();
        if !has_compiler_options(self.cache, digest)? {
            return Ok(None);
        }
        let module = FoundLabel::new(Label::new(COMPILER_OPTIONS, Some(key.clone())), "module");
        self.call(&module, COMPILER_OPTIONS, &key).map(Some)
    }

    /// The call of a label that no recording completes.
    fn unrecorded(&self, found: &FoundLabel, matching: &Matching, index: usize) -> Result<LabelledCall, StoreError> {
        let label = &found.label;
        if let Some(key) = &label.call_key {
            if found.evidence == Evidence::Exact {
                return self.call(found, &label.op_id, key);
            }
            // the version is lost: the newest one that is cached
            let mut versions: Vec<String> = Vec::new();
            for (cached, ..) in self.cache.entries()? {
                if cached.call.call_key == *key && cached.call.op_name() == label.op_name() {
                    versions.push(cached.call.op_id);
                }
            }
            let newest = versions.into_iter().max_by_key(|op_id| split_op_id(op_id).1);
            return self.call(found, newest.as_deref().unwrap_or(&label.op_id), key);
        }
        let missed = matching.missed.iter().find(|missed| missed.index == index);
        let why = missed.map_or_else(
            || "the label has only its name left; name the recordings with `--registry`".to_owned(),
            |missed| missed.text.clone(),
        );
        Ok(LabelledCall { reason: Some(why), ..bare(found, &label.op_id, None) })
    }

    fn call(&self, found: &FoundLabel, op_id: &str, key: &str) -> Result<LabelledCall, StoreError> {
        let call = bare(found, op_id, Some(key.to_owned()));
        Ok(match self.cache.lookup(self.device, op_id, key, None, self.match_mode)? {
            Lookup::Hit(hit) => LabelledCall {
                covered: true,
                direction: Some(hit.key().direction),
                config: Some(hit.entry.config.clone()),
                flags: self.flags(found, &hit),
                ..call
            },
            Lookup::Miss(miss) => LabelledCall { reason: Some(miss.reason()?.to_string()), ..call },
        })
    }

    fn flags(&self, found: &FoundLabel, hit: &Hit<'_>) -> Vec<String> {
        let known = hit.flags.iter().filter(|flag| self.is_here || flag.kind != FlagKind::StaleEnvironment);
        let mut flags: Vec<String> = known
            .map(|flag| format!("{}: {}", serde_json::json!(flag.kind).as_str().unwrap_or_default(), flag.detail))
            .collect();
        if found.backward && hit.key().direction == Direction::Forward {
            flags.push("tuned forward only, but the module also runs it backward".to_owned());
        }
        flags
    }
}

/// Whether a cache has compiler options of a module, whatever the device.
///
/// # Errors
/// If a tier cannot be read.
pub fn has_compiler_options(cache: &TieredCache, digest: &Digest) -> Result<bool, StoreError> {
    let key = digest.to_string();
    let is_of_module = |of: &CacheKey| of.call.op_id == COMPILER_OPTIONS && of.call.call_key == key;
    Ok(cache.entries()?.iter().any(|(of, ..)| is_of_module(of)))
}

fn bare(found: &FoundLabel, op_id: &str, call_key: Option<String>) -> LabelledCall {
    LabelledCall {
        label: Label::new(op_id, call_key),
        evidence: found.evidence,
        occurrences: found.occurrences,
        covered: false,
        direction: None,
        config: None,
        flags: Vec::new(),
        reason: None,
    }
}
