//! Recorded invocations by device, their candidates, and the content-addressed store of their programs.

mod model;

pub use crate::label::Direction;
pub use model::{Argument, Candidate, Invocation, Program, ProgramFormat, Target};
