//! The worker protocol: its messages, one JSON object per line. `docs/worker-protocol.md` is the specification.
//!
//! ```
//! use autotune_lowered_timer::timer::protocol::{Method, Request};
//!
//! let request: Request = serde_json::from_str(r#"{"id":3,"method":"measure","params":{"candidate":2,"runs":5}}"#)?;
//! assert_eq!(request.call, Method::Measure { candidate: 2, runs: 5, batch: 1 });
//! assert_eq!(request.call.method(), "measure");
//! # Ok::<(), serde_json::Error>(())
//! ```

mod limits;
mod lines;
mod messages;

pub use limits::{MAX_KEPT_OUTPUTS, MAX_LINE_BYTES, MAX_RUNS, PROTOCOL_VERSION};
pub use lines::{LineRead, one_line, read_line};
pub use messages::{
    BeginParams, ComparedOutput, ComparedOutputs, CompileAnswer, CompileParams, CostAnalysis, DeviceMemory,
    DifferingElement, ExecutableRef, Hello, KeptOutput, KeptOutputs, KernelSchedule, KernelUse, LaunchedRuns,
    LoadAnswer, LoadParams, MeasureAnswer, MemoryStats, Method, OutputRef, OutputsAnswer, ProgramRef, ProgramSignature,
    Request, Response, RoundAnswer, RunningClocks, WireFailure, capability,
};
