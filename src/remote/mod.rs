//! Shared caches: one place that any number of machines publish to and load from.
//!
//! # What is at a URL
//!
//! | name | what |
//! | --- | --- |
//! | `manifest-v1.json` | which snapshot is in force; the only object that changes, by compare-and-swap |
//! | `snapshots/sha256-DIGEST.snapshot` | a [snapshot](crate::cache::Snapshot) under its digest; never changed |
//! | `snapshots/sha256-DIGEST.snapshot.sig` | its [signature](crate::signature), if it is signed; lines are added |
//!
//! The manifest is at most 64 KiB of JSON; all members are required, except those that later programs add:
//!
//! ```text
//! {"schema":1, "generation":7, "digest":"<64 hexadecimal digits>", "size":81920, "entries":250,
//!  "tool":"autotune-lowered 0.1.0", "published_at":1790000000}
//! ```
//!
//! It names no path: the snapshot's place follows from its digest.
//!
//! # Publishing
//!
//! Read the manifest with its version (an ETag, a generation), fetch its snapshot, merge it with the new entries, and
//! store the merged snapshot under its digest. Then write the manifest on condition that its version is unchanged. If
//! it has changed, another process published: start again. So no publication is lost, and a reader sees either the old
//! state or the new one, complete. The process that stored a snapshot removes it if it lost such a race, unless a
//! manifest may have named it.
//!
//! # Loading
//!
//! The manifest is read; a snapshot that is already here is not fetched. A fetched one is trusted if size,
//! digest, every record and, with keys, a signature of digest, generation and time are right. The last one loaded stays
//! here, for when the network is down, and so does its signature, which shows what is older.

mod address;
mod bucket;
#[cfg(feature = "remote")]
mod environment;
mod error;
mod folder;
mod lost;
mod manifest;
#[cfg(feature = "remote")]
mod objects;
mod pause;
mod pull;
mod push;
mod run;
mod shared;
mod trust;

pub use address::{Address, CachePlace};
pub use error::RemoteError;
pub use manifest::CacheManifest;
pub use pull::Pulled;
pub use push::{Published, Pushing};
pub use run::{COPY_FILE, LoadNotes, SharedOptions, SharedRun, open_for_reading};
pub use shared::Remote;
pub use trust::Trust;
