//! GPU resources of an executable's kernels, read from the bytes that a plugin serialized.
//!
//! The payload is an `ExecutableAndOptionsProto` whose first field holds a file of Riegeli records (`records.rs`). They are the
//! pieces of a `GpuExecutableProto` (`payload.rs`), whose thunks contain their kernels (`thunks.rs`), each as a cubin
//! (`cubin.rs`). The bytes are not trusted: all lengths are bounded, and unknown input yields no figure rather than a wrong
//! one.

mod cubin;
mod fields;
mod little_endian;
mod payload;
mod records;
mod thunks;

pub use payload::kernels_of;
