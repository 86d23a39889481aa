//! Timers: a candidate and its inputs in, samples out. What can crash runs in worker processes.

mod model;

pub use model::{
    Failure, FailureKind, InputArray, Job, JobCandidate, OutputArray, Prepared, ProgramFile, Source, Timer,
};
