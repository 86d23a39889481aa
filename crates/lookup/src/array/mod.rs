//! Arguments and results of programs: element types, shapes, how inputs are filled, how outputs are compared.

mod compare;
mod draws;
mod dtype;
mod element;
mod fill;
mod spec;
mod special;
mod widest;

pub use compare::{Comparing, Comparison, Counting, Finiteness, Reference, Tolerance, element_text};
pub use dtype::{DType, UnknownDType};
pub use fill::{Fill, FillError, MAX_ARRAY_BYTES, argument_seed, generate};
pub use spec::{ArraySpec, SpecError};
pub use special::{Special, other_class, other_class_in, plant};
pub use widest::{ArrayError, error_of, widened};
