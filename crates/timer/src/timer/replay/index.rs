//! `profiles.json`: the candidates whose executions are in a folder's profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::calls::RecordedFailure;
use super::json_file::{self, wrong};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::measured_by::CacheState;
use crate::timer::job::Job;

/// The schema that this program reads and writes.
pub(super) const SCHEMA: u32 = 1;
/// The index's name in its folder.
pub(super) const FILE_NAME: &str = "profiles.json";
/// Maximum size of an index.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Placeholder for a function's number in the name of its module.
pub(super) const NUMBER: &str = "{candidate}";

/// The content of a folder's profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileIndex {
    /// Version of this form: 1.
    pub schema: u32,
    /// The device that the profiles were taken on.
    pub device: DeviceFingerprint,
    /// Whether the timer that took them built programs by itself, so that search spaces added configs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builds_programs: bool,
    /// The invocations.
    pub invocations: Vec<IndexedInvocation>,
}

/// The profiles of one invocation's candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct IndexedInvocation {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute; `forward` by default.
    #[serde(default = "forward")]
    pub direction: Direction,
    /// The state of the caches before the runs; `warm` by default.
    #[serde(default, skip_serializing_if = "CacheState::is_warm")]
    pub cache_state: CacheState,
    /// Names of the functions' modules in the profiles, `{candidate}` for the number. If it is null, executions are
    /// distinguished by their order, which requires the launches of each round.
    #[serde(default = "usual_name", skip_serializing_if = "is_usual_name")]
    pub module_name: Option<String>,
    /// The config of each function.
    pub functions: FunctionConfigs,
    /// Calls outside the rounds that failed, by function.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<usize, Vec<RecordedFailure>>,
    /// The profiles, in the order in which they were taken.
    pub profiles: Vec<TakenProfile>,
}

fn forward() -> Direction {
    Direction::Forward
}

fn usual_name() -> Option<String> {
    Some(format!("jit_autotune_fn_{NUMBER}"))
}

// serde passes a reference to the field
#[allow(clippy::ref_option)]
fn is_usual_name(name: &Option<String>) -> bool {
    *name == usual_name()
}

/// Configs by function number.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct FunctionConfigs(pub BTreeMap<usize, Config>);

impl<'de> Deserialize<'de> for FunctionConfigs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FunctionConfigsVisitor)
    }
}

struct FunctionConfigsVisitor;

impl<'de> Visitor<'de> for FunctionConfigsVisitor {
    type Value = FunctionConfigs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of configs by function number")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FunctionConfigs, A::Error> {
        let (mut functions, mut owners) = (BTreeMap::new(), BTreeMap::new());
        while let Some((id, config)) = map.next_entry::<String, Config>()? {
            let number = id.parse::<usize>().ok().filter(|number| number.to_string() == id);
            let number =
                number.ok_or_else(|| A::Error::custom(format!("`functions`: `{id}` is not a function's number")))?;
            if let Some(other) = owners.insert(config.clone(), number) {
                let message = format!("`functions`: {other} and {number} have the same config {config}");
                return Err(A::Error::custom(message));
            }
            if functions.insert(number, config).is_some() {
                return Err(A::Error::custom(format!("`functions`: {number} occurs twice")));
            }
        }
        Ok(FunctionConfigs(functions))
    }
}

/// A profile of some of the functions.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TakenProfile {
    /// A capture, or a log folder of one, with any number of executions of each function.
    Found(String),
    /// One round, whose launches are known.
    Round(TakenRound),
}

/// A profile of launches that are known, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TakenRound {
    /// The capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The round's failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Functions and how often each ran, in order.
    pub launches: Vec<(usize, u32)>,
}

impl Serialize for TakenProfile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Found(name) => name.serialize(serializer),
            Self::Round(round) => round.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TakenProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TakenProfileVisitor)
    }
}

struct TakenProfileVisitor;

impl<'de> Visitor<'de> for TakenProfileVisitor {
    type Value = TakenProfile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a profile, or an object with `launches` and `profile` or `failure`")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<TakenProfile, E> {
        Ok(TakenProfile::Found(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TakenProfile, A::Error> {
        TakenRound::deserialize(MapAccessDeserializer::new(map)).map(TakenProfile::Round)
    }
}

impl TakenProfile {
    /// The capture's name, if there is one.
    fn profile(&self) -> Option<&str> {
        match self {
            Self::Found(name) => Some(name),
            Self::Round(round) => round.profile.as_deref(),
        }
    }
}

impl IndexedInvocation {
    /// Whether these are the profiles of this call.
    pub(super) fn is_of(&self, job: &Job) -> bool {
        let is_call = self.call == job.call && self.direction == job.direction;
        is_call && self.cache_state == job.cache_state
    }

    fn check(&self, root: &Path) -> Result<(), String> {
        if self.module_name.as_ref().is_some_and(|name| !name.contains(NUMBER)) {
            return Err(format!(".module_name: holds no `{NUMBER}`, so functions cannot be distinguished"));
        }
        let known = self.profiles.iter().filter(|profile| matches!(profile, TakenProfile::Round(_))).count();
        if known != 0 && known != self.profiles.len() {
            return Err(".profiles: some have `launches` and some have none; give all or none".to_owned());
        }
        if known == 0 && self.module_name.is_none() && !self.profiles.is_empty() {
            return Err(".profiles: without `module_name` each needs its `launches`".to_owned());
        }
        for (number, profile) in self.profiles.iter().enumerate() {
            let at = |what: String| format!(".profiles[{number}]: {what}");
            if let TakenProfile::Round(TakenRound { profile, failure, launches }) = profile {
                if profile.is_some() == failure.is_some() {
                    return Err(at("needs either `profile` or `failure`".to_owned()));
                }
                if let Some((id, _)) = launches.iter().find(|(id, _)| !self.functions.0.contains_key(id)) {
                    return Err(at(format!("launches function {id}, which has no config in `functions`")));
                }
            }
            if let Some(name) = profile.profile() {
                inside(root, name).map_err(at)?;
            }
        }
        Ok(())
    }
}

impl ProfileIndex {
    /// Reads and checks the index of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(FILE_NAME);
        if !path.exists() {
            let message = format!(
                "there is no `{FILE_NAME}`, which says whose executions the profiles hold; write one \
                 (docs/profiles.md), or let `--keep-profiles` make the folder"
            );
            return Err(wrong(folder, message));
        }
        let index: Self =
            json_file::read(&path, "list of profiles", "docs/profiles.md has an example", MAX_FILE_BYTES)?;
        if index.schema != SCHEMA {
            return Err(wrong(&path, format!("schema {}, {SCHEMA} is needed", index.schema)));
        }
        let root = folder.canonicalize().map_err(|error| wrong(folder, error))?;
        let mut calls = BTreeSet::new();
        for (number, invocation) in index.invocations.iter().enumerate() {
            let at = |what: String| wrong(&path, format!("invocations[{number}]{what}"));
            let IndexedInvocation { call, direction, cache_state, .. } = invocation;
            if !calls.insert((call, *direction, cache_state)) {
                return Err(at(format!(": {call} {direction} occurs twice")));
            }
            invocation.check(&root).map_err(at)?;
        }
        Ok(index)
    }
}

/// A file or folder inside `root`, which is canonical. A link that leads out is rejected like a path that does.
pub(super) fn inside(root: &Path, name: &str) -> Result<PathBuf, String> {
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !is_plain {
        return Err(format!("`{name}` is not a path inside the folder"));
    }
    let path = root.join(name);
    let real = path.canonicalize().map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    check_real(root, &real).map_err(|what| format!("`{name}` {what}"))?;
    Ok(real)
}

/// The file must exist, be in the folder, and be regular.
pub(super) fn check_real(root: &Path, real: &Path) -> Result<(), String> {
    if !real.starts_with(root) {
        return Err(format!("leads out of the folder, to `{}`", real.display()));
    }
    let metadata = real.metadata().map_err(|error| format!("cannot be read: {error}"))?;
    if metadata.is_file() || metadata.is_dir() { Ok(()) } else { Err("is neither a file nor a folder".to_owned()) }
}
