//! GPU resources of an executable's kernels, read from the bytes that a plugin serialized.
//!
//! The payload is an `ExecutableAndOptionsProto`, from version 0.11 of the plugins on as a split message
//! (`split_proto.rs`): a file of Riegeli records (`records.rs`). One of its fields holds another such file, a split
//! `GpuExecutableProto` (`payload.rs`), whose thunks contain their kernels (`thunks.rs`), each as a cubin (`cubin.rs`).
//! The bytes are not trusted: all lengths are bounded, and unknown input yields no figure rather than a wrong one.

mod cubin;
mod fields;
mod little_endian;
mod payload;
mod records;
mod split_proto;
mod thunks;

pub use payload::{UnknownKernels, kernels_of};
