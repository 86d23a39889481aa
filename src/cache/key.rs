//! What an entry belongs to.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::batch::{is_same_call, own_key};
use crate::call::Direction;
use crate::device::DeviceIdentity;

/// Device, operation, call and direction of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CacheKey {
    /// Operation, `name@vN` or a class path.
    pub op_id: String,
    /// Key of the call's arguments.
    pub call_key: String,
    /// What was tuned.
    pub direction: Direction,
    /// The device that it was tuned on.
    pub device: DeviceIdentity,
}

/// The hash by which stores find the entries of a call, its variants under `vmap` among them: XXH3-64 of the call's own
/// key, seeded with that of the operation. Part of the snapshot's format. It is not made to withstand those who look
/// for collisions: keys are compared whole.
pub(super) fn hash_of_call(op_id: &str, call_key: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(op_id.as_bytes()), own_key(call_key).as_bytes())
}

/// The first eight bytes as a number that compares as they do; a missing one is less than any.
pub(super) fn head(text: &str) -> u64 {
    let mut bytes = [0; 8];
    for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    u64::from_be_bytes(bytes)
}

impl CacheKey {
    /// The key as a JSON array, `[op_id, call_key, direction, device]`: parts never run together, and keys of one
    /// call stand side by side.
    pub fn to_text(&self) -> String {
        serde_json::to_string(&(&self.op_id, &self.call_key, self.direction, &self.device)).unwrap_or_default()
    }

    /// The key of a text that [`to_text`](Self::to_text) made.
    pub fn from_text(text: &str) -> Option<Self> {
        let (op_id, call_key, direction, device) = serde_json::from_str(text).ok()?;
        Some(Self { op_id, call_key, direction, device })
    }

    /// What every key of one operation and call begins with, mapped by `vmap` or not; those of other calls may too.
    pub fn prefix(op_id: &str, call_key: &str) -> String {
        let mut text = serde_json::to_string(&(op_id, own_key(call_key))).unwrap_or_default();
        // the bracket, and the quote: a variant's key goes on
        text.truncate(text.len().saturating_sub(2));
        text
    }

    /// Whether it is of this operation and call, mapped or not.
    pub fn is_of_call(&self, op_id: &str, call_key: &str) -> bool {
        self.op_id == op_id && is_same_call(&self.call_key, call_key)
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
            op_id: op.into(),
            call_key: call.into(),
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
    }
}
