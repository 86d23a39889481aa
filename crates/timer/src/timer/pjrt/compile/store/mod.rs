//! Serialized executables, kept from run to run, because a compilation takes a hundred times as long as loading.
//!
//! A folder `executables-v1` of files, each named by its key's digest. Format of a file:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `ATLEXE1\n` |
//! | 4 | length of the header, little endian |
//! | 32 | SHA-256 of the header |
//! | header | JSON: `{"key": {…}, "payload_digest": SHA-256, "payload_bytes": n, "signature": …, "note": {…}}` |
//! | payload | the plugin's bytes, to the file's end; empty if the compiler refused the program |
//!
//! Every field of the key is in the header and is compared: a file with another key counts as missing. A file is
//! written under a temporary name and renamed. Anything malformed, even one flipped byte, also counts as missing, and
//! the program is compiled again. A file may be replaced between finding and loading it; therefore the worker receives
//! the payload's digest and verifies what it has read. Nothing is synced, because everything here can be recomputed: a
//! file truncated by a power failure does not match its digests. A folder, link, pipe or device in a file's place is no
//! file either; the file that is written next replaces it, and a folder that is not empty is moved to `X.exe.aside`.
//!
//! Executables that other users load are signed, and so are refusals. Beside each file lie signatures of the SHA-256 of
//! its header (`X.exe.sig`, in the format of [`crate::signature`]). The header contains the key, a refusal's reason and
//! the payload's digest, so the signature covers the whole file.
//!
//! [`bound_executables`] limits the folder's size.

mod believed;
mod bounds;
mod entry;
mod file;
mod folder;
mod items;
mod key;
mod users;

pub(crate) use believed::believed;
pub use bounds::{BoundExecutables, ExecutableBounds, bound_executables, executables_folder, keeps_executables};
pub use entry::CompiledFor;
pub(crate) use entry::{CompileNote, KeptOutcome, ListedExecutable, StoreListing, StoredExecutable};
pub(crate) use file::MAX_EXECUTABLE_BYTES;
pub(crate) use folder::ExecutableStore;
pub(crate) use key::ExecutableKey;
