//! What each side says: requests with their parameters, and the answers to them.

mod hello;
mod measured;
mod outputs;
mod program;
mod request;
mod response;

pub use hello::{DeviceMemory, Hello, capability};
pub use measured::{MeasureAnswer, RoundAnswer, RunningClocks};
pub use outputs::{
    ComparedOutput, ComparedOutputs, DifferingElement, KeptOutput, KeptOutputs, OutputRef, OutputsAnswer,
};
pub use program::{CompileAnswer, CostAnalysis, KernelSchedule, KernelUse, LoadAnswer, MemoryStats, ProgramSignature};
pub use request::{BeginParams, CompileParams, ExecutableRef, LaunchedRuns, LoadParams, Method, ProgramRef, Request};
pub use response::{Response, WireFailure};
