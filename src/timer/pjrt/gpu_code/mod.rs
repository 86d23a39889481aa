//! What the kernels of a GPU's executable take of it, read from the bytes that a plugin serialized.
//!
//! The payload is an `ExecutableAndOptionsProto` whose first field holds a file of Riegeli records (`records.rs`). They make up
//! a `GpuExecutableProto` in pieces (`payload.rs`), whose thunks bring their kernels along (`thunks.rs`), each as a cubin
//! (`cubin.rs`). The bytes may be anything: all lengths are bounded, and what is not understood gives nothing, never a figure
//! that may be wrong.

mod cubin;
mod fields;
mod little_endian;
mod payload;
mod records;
mod thunks;

pub use payload::kernels_of;
