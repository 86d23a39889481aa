//! MLIR bytecode of a portable artifact: its structure, its semantic digest, and single attributes.
//!
//! Attributes and types are numbered in one table that locations share, and sorted by how often they are used, so a
//! program recorded at another place differs in nearly every byte. The digest therefore resolves each reference to its
//! content and traverses the operations without their locations, names of the module and orders of uses.
//!
//! Layout: MLIR's "Bytecode Format" page (mlir.llvm.org/docs/BytecodeFormat), versions 0 to 6; codes of builtin
//! attributes: `mlir/IR/BuiltinDialectBytecode.td`; of VHLO's: `stablehlo/dialect/VhloBytecode.cpp`.

mod attribute;
#[cfg(test)]
mod back_compat;
mod container;
mod contents;
mod encoding;
mod graph;
mod in_f64;
mod properties;
mod spelling;
mod walk;

pub(crate) use attribute::integer_attribute;
pub(crate) use attribute::integers_attribute;
pub(crate) use container::find_cut;
pub(crate) use graph::{functions, read};
pub(crate) use in_f64::in_f64;
pub(crate) use walk::semantic_digest;
