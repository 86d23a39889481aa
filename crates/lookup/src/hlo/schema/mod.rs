//! XLA's own messages and those in calls of Triton kernels, as far as they are read: the generated Rust of
//! `proto/hlo.proto`, `proto/triton.proto` and `proto/xla_data.proto`.

#[allow(missing_docs, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod hlo;
#[allow(missing_docs, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod triton;
#[allow(missing_docs, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod xla_data;
