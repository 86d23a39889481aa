//! Recorded invocations by device, their candidates, and the content-addressed store of their programs.

mod model;

pub use model::{Argument, Candidate, Direction, Invocation, Program, ProgramFormat, Target};
