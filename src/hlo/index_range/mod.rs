//! The range of a module's integer arguments that are indices, from the shapes that they index into.
//!
//! An argument that becomes the index of a gather, of a scatter or of a dynamic slice by way of operations that keep values, or that
//! wrap negative ones, is in the range of the operand's dimension. Arguments are followed into functions, out of them, and into loops.
//! Each form of a module has a reader, which gives its functions in one form.

mod follow;
mod places;
mod proto;
mod text;

pub(super) use proto::index_ranges as index_ranges_of_proto;
pub(super) use text::index_ranges as index_ranges_of_text;
