//! Snapshots: one immutable file of best configs that any number of processes map at once, without a lock.
//!
//! # The file, version 1
//!
//! Numbers are unsigned and little-endian. A checksum is the lower half of the XXH3-64 of what it covers. A file is
//! written under a temporary name, synced, renamed, and never changed again; equal entries make equal bytes.
//!
//! Header, 64 bytes:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 8 | `89 41 54 4c 53 4e 50 0a` |
//! | 8 | 4 | version. Any other is refused by name |
//! | 12 | 4 | checksum of header and table with these four as zero |
//! | 16 | 8 | length of the file |
//! | 24 | 8 | number of sections, at most 64 |
//! | 32 | 32 | digest: SHA-256 of header and table with digest and checksum as zero |
//!
//! The table follows, 64 bytes per section. Sections lie end to end in its order, from the end of the table to the end
//! of the file, each a multiple of 64 bytes long, with zeros at its end:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | kind |
//! | 4 | 4 | flags: 1 if a reader must know the kind; it skips an unknown section without it, and refuses one with it |
//! | 8 | 8, 8 | offset, length |
//! | 24 | 8 | number of items in it |
//! | 32 | 32 | SHA-256 of the section |
//!
//! | kind | section | counts | what |
//! | --- | --- | --- | --- |
//! | 1 | names | bytes of JSON | a checksum of the rest, then `{"devices":[…],"operations":[…]}`, both sorted |
//! | 2 | records | entries | what follows the config in each entry, in the order of the [keys](super::CacheKey) |
//! | 3 | configs | configs | each config once, in the order in which records need them |
//! | 4 | calls | entries | the keys, in their order, each with where its config and record begin |
//! | 5 | blocks | blocks | the index |
//! | 6 | fences | blocks | a checksum of the rest, then the upper half of each block's first slot |
//!
//! A look-up touches a block, a call and a config, which many calls share: all three are dense. The record, which is
//! ten times as long as the call, is read only for the whole entry. Calls, configs and records each have zeros up to a
//! multiple of 8 bytes, and *place* is where one begins in its section, in units of 8 bytes. Lengths are those of the
//! texts alone.
//!
//! | call: at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | checksum of what follows up to the end of the call key |
//! | 4 | 4 | length of the call key |
//! | 8 | 4, 4 | places of the config and the record |
//! | 16 | 4 | the operation's index among the operations |
//! | 20 | 4 | twice the device's index among the devices, plus one for `forward-vjp` |
//! | 24 | | call key |
//!
//! | config: at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | checksum of what follows up to the end of the config |
//! | 4 | 4 | length of the config |
//! | 8 | | config in canonical JSON |
//!
//! | record: at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | checksum of what follows up to the end of the text |
//! | 4 | 4 | length of the text |
//! | 8 | 8 | one more than the time of the decision, seconds since 1970; zero if the entry was not decided |
//! | 16 | | text: an entry in every store is `{"config":`, the config, and this |
//!
//! A block of the index has 64 bytes: the checksum of the other 60, the number of slots in use (4 bytes), and 7 slots
//! of 8 bytes. Of a slot, the upper half is that of the call's hash, the lower half the call's place. Slots are sorted
//! as numbers over all blocks; all blocks but the last are full. The hash is XXH3-64 of the call key, without the
//! [variant](crate::batch) that it may name, seeded with XXH3-64 of the operation: all entries of one call stand
//! together.
//!
//! # What is checked when
//!
//! Opening checks header, table, names and fences; a look-up checks the blocks, calls, configs and records that it
//! touches, and compares the whole key. [`Snapshot::verify`] checks every byte. Nothing is used unchecked: a damaged
//! file gives an error that names the place, never another config.

mod layout;
mod reader;
mod store;
mod writer;

pub use reader::{Snapshot, SnapshotRecord};
pub use store::{SNAPSHOT_FILE, SnapshotStore};
pub use writer::write_rows;
pub use writer::write_snapshot;
