//! The key of an entry: owned, as stores keep it, and in borrowed parts, as a look-up passes it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use twox_hash::XxHash3_64;

use crate::batch::{is_same_call, own_key};
use crate::call::{Call, Direction};
use crate::device::DeviceIdentity;

/// Device, operation, call and direction of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey {
    /// The call.
    pub call: Call,
    /// What was tuned.
    pub direction: Direction,
    /// The device that it was tuned on.
    pub device: DeviceIdentity,
}

/// A [`CacheKey`] in borrowed parts, which compares the same way, so that a look-up copies nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRef<'a> {
    /// Operation.
    pub op_id: &'a str,
    /// Key of the call's arguments.
    pub call_key: &'a str,
    /// What was tuned.
    pub direction: Direction,
    /// The device that it was tuned on.
    pub device: &'a DeviceIdentity,
}

impl KeyRef<'_> {
    /// The call that was tuned.
    pub fn call(&self) -> Call {
        Call::new(self.op_id, self.call_key)
    }

    /// A key of its own.
    pub fn to_key(self) -> CacheKey {
        CacheKey { call: self.call(), direction: self.direction, device: self.device.clone() }
    }

    /// Whether operation and device are the same objects in memory.
    pub(super) fn is_named_alike(&self, other: &KeyRef<'_>) -> bool {
        std::ptr::eq(self.op_id, other.op_id) && std::ptr::eq(self.device, other.device)
    }

    /// Whether it is of this operation and call, mapped or not.
    pub fn is_of_call(&self, op_id: &str, call_key: &str) -> bool {
        self.op_id == op_id && is_same_call(self.call_key, call_key)
    }
}

/// The hash by which stores find the entries of a call, including its variants under `vmap`: XXH3-64 of the call's own
/// key, seeded with that of the operation. Part of the snapshot's format. It need not resist deliberate collisions,
/// because whole keys are compared.
pub(super) fn hash_of_call(op_id: &str, call_key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(op_id.as_bytes()), own_key(call_key).as_bytes())
}

impl CacheKey {
    /// Its parts, borrowed.
    pub fn parts(&self) -> KeyRef<'_> {
        let Self { call: Call { op_id, call_key }, direction, device } = self;
        KeyRef { op_id, call_key, direction: *direction, device }
    }

    /// The key as a JSON array, `[op_id, call_key, direction, device]`: parts are unambiguous, and keys of one call are
    /// adjacent.
    pub fn to_text(&self) -> String {
        text_of(self.parts())
    }

    /// The key of a text that [`to_text`](Self::to_text) made.
    pub fn from_text(text: &str) -> Option<Self> {
        let (op_id, call_key, direction, device) = serde_json::from_str(text).ok()?;
        Some(Self { call: Call { op_id, call_key }, direction, device })
    }

    /// What every key of one operation and call begins with, mapped by `vmap` or not; those of other calls may too.
    pub fn prefix(op_id: &str, call_key: &str) -> String {
        let mut text = serde_json::to_string(&(op_id, own_key(call_key))).unwrap_or_default();
        // the bracket, and the quote: a variant's key continues
        text.truncate(text.len().saturating_sub(2));
        text
    }

    /// Whether it is of this operation and call, mapped or not.
    pub fn is_of_call(&self, op_id: &str, call_key: &str) -> bool {
        self.parts().is_of_call(op_id, call_key)
    }
}

/// The first eight bytes as a number that compares as they do; missing bytes are less than any.
pub(super) fn head(text: &str) -> u64 {
    let mut bytes = [0; 8];
    for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    u64::from_be_bytes(bytes)
}

/// As [`CacheKey::to_text`].
pub fn text_of(key: KeyRef<'_>) -> String {
    serde_json::to_string(&(key.op_id, key.call_key, key.direction, key.device)).unwrap_or_default()
}

/// The value of a key in a map, found by the key's parts without allocating a key.
pub fn by_key<'a, T>(map: &'a BTreeMap<CacheKey, T>, key: KeyRef<'_>) -> Option<&'a T> {
    map.get(&key as &dyn Parts)
}

/// Anything with the parts of a key, by which maps of keys are searched.
trait Parts {
    fn key(&self) -> KeyRef<'_>;
}

impl Parts for CacheKey {
    fn key(&self) -> KeyRef<'_> {
        self.parts()
    }
}

impl Parts for KeyRef<'_> {
    fn key(&self) -> KeyRef<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Parts + 'a> for CacheKey {
    fn borrow(&self) -> &(dyn Parts + 'a) {
        self
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for dyn Parts + '_ {}

impl PartialOrd for dyn Parts + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Parts + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_parts_do_not_run_together() {
        let device =
            DeviceIdentity { platform: "cpu".into(), device_kind: "a|b\n".into(), hardware: Default::default() };
        let key = |op: &str, call: &str| CacheKey {
            call: Call::new(op, call),
            direction: Direction::ForwardVjp,
            device: device.clone(),
        };
        let one = key("a\",\"b", "c");
        assert_eq!(CacheKey::from_text(&one.to_text()), Some(one.clone()));
        assert_ne!(one.to_text(), key("a", "b\",\"c").to_text());
        assert!(one.to_text().starts_with(&CacheKey::prefix("a\",\"b", "c")));
        assert!(!key("a@v1", "c").to_text().starts_with(&CacheKey::prefix("a@v1", "cc")));
        let mapped = key("a@v1", "c~4-00000000");
        assert!(mapped.to_text().starts_with(&CacheKey::prefix("a@v1", "c~8-00000000")));
        assert!(mapped.is_of_call("a@v1", "c") && mapped.is_of_call("a@v1", "c~8-00000000"));
        assert!(!mapped.is_of_call("a@v1", "cc") && !mapped.is_of_call("a@v1", "c~4"));
        assert_eq!(one.parts().to_key(), one);
    }

    #[test]
    fn parts_find_what_whole_keys_find() {
        let device = |cores: &str| DeviceIdentity {
            platform: "cpu".into(),
            device_kind: "cpu".into(),
            hardware: [("cores".to_owned(), cores.to_owned())].into(),
        };
        let mut keys = Vec::new();
        for (op_id, call_key) in [("b@v1", "x"), ("b@v1", "x~4-00000000"), ("a@v1", "y"), ("", "")] {
            for direction in [Direction::ForwardVjp, Direction::Forward] {
                for cores in ["2", "10"] {
                    keys.push(CacheKey { call: Call::new(op_id, call_key), direction, device: device(cores) });
                }
            }
        }
        let (kept, missing) = keys.split_at(keys.len() - 3);
        let map: BTreeMap<CacheKey, usize> = kept.iter().cloned().zip(0..).collect();
        for (place, key) in kept.iter().enumerate() {
            assert_eq!((by_key(&map, key.parts()), map.get(key)), (Some(&place), Some(&place)));
        }
        assert!(missing.iter().all(|key| by_key(&map, key.parts()).is_none()));
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
            assert_eq!(a.parts().cmp(&b.parts()), a.cmp(b));
        }
    }
}
