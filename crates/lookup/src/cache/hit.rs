//! The result of a look-up, with its caveats.

use std::sync::Arc;

use serde::Serialize;

use super::entry::Entry;
use super::key::{CacheKey, KeyRef};
use super::store::Tier;

/// Why a hit needs caution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FlagKind {
    /// Same device, other driver, plugin or flags.
    StaleEnvironment,
    /// Another device, accepted by the match mode.
    OtherDevice,
    /// The same call, mapped by other `vmap`s or by none.
    OtherBatch,
}

/// A flag with its detail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Flag {
    /// What kind.
    pub kind: FlagKind,
    /// What differs.
    pub detail: String,
}

impl Flag {
    pub(super) fn new(kind: FlagKind, detail: String) -> Self {
        Self { kind, detail }
    }
}

/// An entry that applies.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit<'a> {
    key: HitKey<'a>,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Where it was found.
    pub tier: Tier,
    /// Caveats before using it.
    pub flags: Vec<Flag>,
}

/// The key of a hit: usually the requested one, which the caller has.
#[derive(Debug, Clone, PartialEq)]
enum HitKey<'a> {
    Requested(KeyRef<'a>),
    Other(Box<CacheKey>),
}

impl<'a> Hit<'a> {
    /// A hit of exactly the requested key.
    pub(super) fn asked(key: KeyRef<'a>, entry: Arc<Entry>, tier: Tier) -> Self {
        Self { key: HitKey::Requested(key), entry, tier, flags: Vec::new() }
    }

    /// A hit of another entry that applies.
    pub(super) fn other(key: CacheKey, entry: Arc<Entry>, tier: Tier, flags: Vec<Flag>) -> Self {
        Self { key: HitKey::Other(Box::new(key)), entry, tier, flags }
    }

    /// Its key; the device is the one that it was tuned on.
    pub fn key(&self) -> KeyRef<'_> {
        match &self.key {
            HitKey::Requested(key) => *key,
            HitKey::Other(key) => key.parts(),
        }
    }

    /// The hit with a key of its own, for callers that keep it longer than the request.
    pub fn into_owned(self) -> Hit<'static> {
        let key = match self.key {
            HitKey::Requested(key) => Box::new(key.to_key()),
            HitKey::Other(key) => key,
        };
        Hit { key: HitKey::Other(key), entry: self.entry, tier: self.tier, flags: self.flags }
    }
}
