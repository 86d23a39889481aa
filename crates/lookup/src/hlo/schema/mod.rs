//! XLA's own messages, as far as they are read: the generated Rust of `proto/hlo.proto` and `proto/xla_data.proto`.

#[allow(missing_docs, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod hlo;
#[allow(missing_docs, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod xla_data;
