//! What each side says: requests with their parameters, and the answers to them.

mod hello;
mod measured;
mod outputs;
mod program;
mod request;
mod response;

pub use hello::{DeviceMemory, Hello, capability};
pub use measured::{Measured, Profiled, RunningClocks};
pub use outputs::{ComparedOutput, ComparedOutputs, FirstMismatch, KeptOutput, KeptOutputs, OutputRef, Outputs};
pub use program::{Compiled, CostAnalysis, KernelSchedule, KernelUse, Loaded, MemoryStats, Signature};
pub use request::{BeginParams, CompileParams, ExecutableRef, Input, Launch, LoadParams, Method, ProgramRef, Request};
pub use response::{Response, WireFailure};
