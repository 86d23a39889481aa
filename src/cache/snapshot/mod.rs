//! Snapshots: one immutable file of best configs that any number of processes map at once, without a lock.
//!
//! # The file, version 3
//!
//! Numbers are unsigned and little-endian. CRC is CRC-32 (IEEE 802.3). A file is written under a temporary name, synced,
//! renamed, and never changed again; equal entries make equal bytes.
//!
//! Header, 128 bytes:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 8 | `89 41 54 4c 53 4e 50 0a` |
//! | 8 | 4 | version. A larger one is refused by name |
//! | 12 | 4 | CRC of the 128 bytes with these four as zero |
//! | 16 | 8 | length of the file |
//! | 24 | 8 | number of entries |
//! | 32 | 8, 4, 4 | devices: offset, length, CRC |
//! | 48 | 8, 4, 4 | fences: offset, number of blocks, CRC |
//! | 64 | 8 | offset of the blocks |
//! | 72 | 8, 8 | records: offset, length |
//! | 88 | 8 | 1 where an origin has `superseded`, else 0 |
//! | 96 | 32 | digest: SHA-256 of the bytes from 128 to the end, then of bytes 0 to 96 with the CRC as zero |
//!
//! *Devices*: a JSON array of device identities, sorted. *Records*: one after the other, in the order of the
//! [keys](super::CacheKey); each is
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC of what follows up to the origin |
//! | 4 | 4, 4, 4, 4 | lengths of operation, call key, config, origin |
//! | 20 | 4 | tag: twice the device's place among the devices, one more for `forward-vjp` |
//! | 24 | 4 | CRC of the origin |
//! | 28 | | operation, call key, config (canonical JSON), origin (JSON, or nothing), each as UTF-8 |
//!
//! The origin is a JSON object with `provenance`, where the entry was decided here, and `peer`, where it was imported from
//! another tool that wants its own record back. Also `superseded`, where there are any: decisions of the same call that a
//! [merge](crate::cache::merge) did not follow, each with `config`, `provenance` and `peer`. It has a CRC of its own, since who wants a
//! config need not touch what is twice as long.
//!
//! Versions 1 and 2 are read as well. Their records have one CRC, at 0, of all the rest, and none at 24: the texts begin there. The header has zero at
//! 88; where an origin has `superseded` the version is 2, else 1.
//!
//! *Blocks*, the index: each 512 bytes: the CRC of the other 508, the number of slots in use (2 bytes), two zero bytes,
//! and 21 slots of 24 bytes: hash (8), the record's offset (8) and length (4), tag (4). Slots are sorted by hash, then
//! tag, over all blocks; all blocks but the last are full. The hash is XXH3-64 of the call key, without the
//! [variant](crate::batch) that it may name, seeded with XXH3-64 of the operation: all entries of one call stand
//! together. *Fences*: the hash of each block's first slot, 8 bytes each.
//!
//! # What is checked when
//!
//! Opening checks header, devices and fences; a look-up checks the blocks and records that it touches, and compares the whole
//! key. [`Snapshot::verify`] checks every byte. What was not checked is not believed: a damaged file gives an error that names
//! the place, never another config.

mod layout;
mod reader;
mod store;
mod writer;

pub(in crate::cache) use reader::entry_of;
pub use reader::{Snapshot, SnapshotRecord};
pub use store::SnapshotStore;
pub use writer::write_snapshot;
pub(in crate::cache) use writer::{Recorded, put_origin, write_sorted};

/// Name of the snapshot in a cache folder.
pub const SNAPSHOT_FILE: &str = "best-v1.snapshot";
