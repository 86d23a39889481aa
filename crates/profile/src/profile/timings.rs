//! [`Profiler`] by the semantics that it was given.

use super::ejkernel;
use super::execution::DeviceTime;
use super::per_execution;
use super::profiler::{Profiler, Semantics, Timings};
use super::space::Plane;

impl Profiler {
    /// The samples of one plane of a profile, given its executions.
    pub fn timings(&self, plane: Plane<'_>, time: &DeviceTime) -> Timings {
        match self.semantics {
            Semantics::Ejkernel => ejkernel::timings(self, plane),
            Semantics::PerExecution => per_execution::timings(self, plane, time, true),
        }
    }

    /// The samples of a plane of which only executions count, and no other events.
    pub fn timings_of_executions(&self, plane: Plane<'_>, time: &DeviceTime) -> Timings {
        per_execution::timings(self, plane, time, false)
    }
}
