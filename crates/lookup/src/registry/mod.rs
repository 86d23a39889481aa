//! Recorded invocations by device, their candidates, and the content-addressed store of their programs.
//!
//! # The folder, schema 1
//!
//! Anything may write it that follows these rules; the Python recorder does. All text is UTF-8.
//!
//! ```text
//! registry.json
//! invocations/<op slug>/<key>-<content>.json
//! programs/<first two digits>/<content>.<extension>
//! arrays/<content>.bin
//! ```
//!
//! - `registry.json` is `{"kind":"autotune-lowered-registry","schema":1}`. A reader refuses a larger schema by name.
//! - `<content>` is the SHA-256 of the file's bytes, 64 lower-case hexadecimal digits: each name is its file's
//!   checksum, and a file whose bytes do not fit its name is reported and left out.
//! - A record is one JSON object, `{"schema":1,"invocation":{…}}`, with the fields of [`Invocation`] by their names.
//! - `<op slug>` is the `op_id` with each byte outside `A-Z a-z 0-9 . _ -` written as `_`, a leading `.` as well, and
//!   at most 80 bytes of it. It is for people: a reader takes the operation from the record.
//! - `<key>` is the first 16 hexadecimal digits of [`Invocation::key`]: the SHA-256 over these fields, each
//!   preceded by its length as eight little-endian bytes: `invocation-key`; then `device` and the 32 bytes of
//!   [`DeviceIdentity::to_digest`](crate::device::DeviceIdentity::to_digest), or `platform` and its name; then `op_id`,
//!   `call_key` and `forward` or `forward-vjp`.
//! - `<extension>` is `mlirbc` (portable StableHLO artifact), `mlir` (StableHLO text) or `hlo.pb` (`HloModuleProto`).
//! - `arrays/` holds dense little-endian host bytes, a whole byte for each element narrower than one.
//! - A writer writes each file under a name that starts with `.tmp-` in the file's own folder, syncs it, renames it and
//!   syncs the folder; programs and arrays before the record that names them. Names that start with a `.` are not read.
//!
//! Two recorders never write the same name with different bytes, so there is no lock and neither can undo the other.
//! Records of one key are merged when they are read: see [`RecordChange`].
//!
//! A semantic digest is the SHA-256 of a program's StableHLO text without debug information and with the module
//! named `@module`; see [`semantic_digest`]. Programs that have one semantic digest are one program, measured once.

mod add;
mod check;
mod disk;
mod error;
mod folder;
mod lookup;
mod merge;
mod model;
mod record;
mod semantic;
mod verify;
mod writer;

pub use check::{InvalidInvocation, NotRunnable, ProgramGroup};
pub use disk::MAX_PROGRAM_BYTES;
pub use error::{ProblemKind, RegistryError, RegistryProblem};
pub use folder::Registry;
pub use lookup::ListedInvocation;
pub use merge::RecordChange;
pub use model::{Argument, Candidate, Distribution, Invocation, Program, ProgramFormat, RecordedTarget, SCHEMA};
pub use semantic::{custom_calls, semantic_digest};
pub use verify::VerifyReport;
pub use writer::RegistryWriter;
