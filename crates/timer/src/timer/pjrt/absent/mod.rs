//! Devices that need not be present: workers that open a plugin's description of them, and compilers for such targets.

mod outcome;
mod target_compiler;
mod target_options;
mod target_worker;
#[allow(unsafe_code)]
mod topology;

pub use outcome::{CompileOutcome, kept_outcomes};
pub use target_compiler::{TargetCompiler, TargetProgram};
pub use target_options::TargetOptions;
pub(crate) use target_worker::TargetWorker;
pub(crate) use topology::{Topology, topology_of};
