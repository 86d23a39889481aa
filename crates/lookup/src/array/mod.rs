//! Arguments and results of programs: element types, shapes, how inputs are filled, how outputs are compared.
//!
//! ```
//! use autotune_lowered_lookup::array::{ArraySpec, Fill, Reference, Tolerance, generate};
//!
//! let spec: ArraySpec = "f32[2,3]".parse()?;
//! let fill = Fill::Uniform { low: 0.0, high: 1.0 };
//! let values = generate(&spec, &fill, 7)?;
//! assert_eq!(Some(values.len() as u64), spec.host_bytes());
//! assert_eq!(generate(&spec, &fill, 7)?, values, "the same on every machine");
//!
//! let reference = Reference::new(spec.clone(), values.clone(), Tolerance::for_dtype(spec.dtype));
//! assert!(reference.compare(&values).matches);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod compare;
mod draws;
mod dtype;
mod element;
mod element_text;
mod fill;
mod finiteness;
mod in_f64;
mod npy;
mod spec;
mod special_values;
mod tiles;
mod tolerance;

pub use agreement::{ComparedBy, Disagreement, OutputBounds, OutputDeviation};
pub use compare::{ArrayComparison, Comparing, Reference, WorstElement};
pub use dtype::{DType, UnknownDType};
pub use element_text::element_text;
pub use fill::{Fill, FillError, MAX_ARRAY_BYTES, argument_seed, generate};
pub use finiteness::{Counting, Finiteness};
pub use in_f64::{ArrayError, error_of, widened};
pub use npy::{MAX_NPY_HEADER_BYTES, NpyHeader};
pub use spec::{ArraySpec, SpecError};
pub use special_values::{SpecialKind, other_class, other_class_in, plant};
pub use tolerance::Tolerance;
