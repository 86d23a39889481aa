//! Best configs by device, operation and call: one tier each in memory, in sled and in shipped files, and the tiers
//! together.
//!
//! A cache folder holds, beside the sample log that the tuner writes:
//!
//! | name | what |
//! | --- | --- |
//! | `lock` | held by the one process that has the folder open; says which |
//! | `sled-v1/` | the sled database; entries in the tree `entries-v1` |
//! | `best-v1.snapshot` | the [snapshot](Snapshot) of the entries that was published last: what other processes read |
//! | `selftest-v1.json` | this machine's noise floor for some programs, written by `selftest` |
//! | `sled-v1.state` | `open`, or `clean`, digest of the folder's files and length of the log at the last close |
//!
//! sled cannot be trusted to notice a flipped bit, and may panic on one. So its folder is opened only if its bytes are
//! those that the last close left. Otherwise it is set aside and filled again from the sample log.
//!
//! ```
//! use autotune_lowered_lookup::cache::{JsonForm, Lookup, ShippedConfigs, TieredCache};
//! use autotune_lowered_lookup::device::{DeviceFingerprint, MatchMode};
//!
//! let mut shipped = ShippedConfigs::default();
//! let line = r#"{"device": "cuda:NVIDIA H200", "op_id": "matmul@v1", "call_key": "0f", "config": {"block": 128}}"#;
//! shipped.add(JsonForm::Lines, line)?;
//! let cache = TieredCache::new(vec![Box::new(shipped)]);
//!
//! let device: DeviceFingerprint =
//!     serde_json::from_str(r#"{"identity": {"platform": "cuda", "device_kind": "NVIDIA H200"}}"#)?;
//! match cache.lookup(&device, "matmul@v1", "0f", None, MatchMode::Exact)? {
//!     Lookup::Hit(hit) => assert_eq!(hit.entry.config.as_str(), r#"{"block":128}"#),
//!     Lookup::Miss(miss) => panic!("{miss:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cached;
mod diff;
mod entry;
mod error;
mod hit;
mod json;
mod key;
mod lock;
mod memory;
mod miss;
mod option_policy;
mod overlay;
mod place;
mod row;
mod shipped;
mod snapshot;
mod store;
mod tiered;

pub use crate::mapped_file::Mapping;
pub use crate::stats::Interval;
pub use cached::Cached;
pub use diff::{CacheDiff, EntryChange, EntryDifference, diff};
pub use entry::{Entry, EntryOf, Peer, PeerRecord, Provenance, Superseded, SupersededOf};
pub use error::{StoreError, StoreErrorKind};
pub use hit::{Flag, FlagKind, Hit};
pub use json::{JsonForm, read_entries, write_entries};
pub use key::{CacheKey, KeyRef, by_key, text_of};
pub use lock::FolderLock;
pub use memory::MemoryStore;
pub use miss::MissReason;
pub use option_policy::{COMPILER_OPTIONS, OptionPolicy, field_policy, option_policy, refuse, why_refused};
pub use overlay::OverlayGuard;
pub use place::{PlaceError, is_url, shown_url, snapshot_of};
pub use row::{EntryRow, EntryRows, MergedText};
pub use shipped::{ShippedConfigs, SkippedFile, write_shipped};
pub use snapshot::{SNAPSHOT_FILE, Snapshot, SnapshotRecord, SnapshotStore, write_rows, write_snapshot};
pub use store::{ConfigStore, Tier};
pub use tiered::{Lookup, Miss, TieredCache};
