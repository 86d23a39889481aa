//! Constraints: one expression over named values that is true or false, evaluated without allocation.
//!
//! ```
//! use autotune_lowered_search::constraint::{Constraint, Kinds, ConstraintValue};
//!
//! let names = [("rows", Kinds::ANY), ("block", Kinds::INT)];
//! let constraint = Constraint::compile("rows % block == 0 && block <= 256", &names).unwrap();
//! let values = [ConstraintValue::Int(512), ConstraintValue::Int(128)];
//! assert_eq!(constraint.holds(|name| Ok(values[name])), Ok(true));
//! ```
//!
//! The grammar, from the loosest binding; operators on one line have equal precedence and are left-associative unless
//! stated otherwise:
//!
//! ```text
//! ||                       evaluates its right side only where the left is false
//! &&                       only where the left is true
//! ==  !=
//! <  <=  >  >=
//! +  -
//! *  /  %
//! **                       to the right
//! -a  !a
//! 1  2.5  1e-3  "text"  'text'  true  false  name  object.name  (a)  min(a, b)  max(a, b)
//! ```
//!
//! - Integers have 64 bits; a result beyond them is an error, and so is a float that is not finite.
//! - `/` of integers drops the fraction, and `%` has the sign of its left side. Beside a float an integer becomes one.
//! - `==` and `!=` compare values of any kinds; those of different kinds are not equal, except integers and floats.
//! - `<` and its like compare numbers, strings, or booleans, with their own kind only.
//!
//! An expression is compiled to steps of a stack machine. The kinds of each name are known then, so that an operation
//! without possible operands is a compile error. Nesting is bounded, as is the number of steps, and no step runs twice.

mod error;
mod operator;
mod parser;
mod program;
mod token;
mod value;

pub use error::ConstraintError;
pub use program::Constraint;
pub use value::{ConstraintValue, Kinds};
