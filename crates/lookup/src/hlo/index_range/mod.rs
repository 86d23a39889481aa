//! The range of a module's integer arguments that serve as indices, from the shapes that they index into.
//!
//! An argument may become the index of a gather, a scatter or a dynamic slice through operations that keep values or
//! wrap negative ones. Its range is then that of the operand's dimension. Arguments are followed into functions, out of
//! them, and into loops. Each form of a module has a reader, which returns its functions in one form.

mod follow;
mod graph;
mod places;
mod proto;

pub(super) use graph::index_ranges as index_ranges_of_functions;
pub(super) use proto::index_ranges as index_ranges_of_proto;
