//! Programs compiled for absent devices: which configs a device accepts, how much memory each takes, and executables to
//! measure on the device.
//!
//! The vendors' PJRT plugins compile without a device (`PJRT_TopologyDescription_Create`, `PJRT_Compile`). Nothing is
//! run, and nothing is decided: a config that compiles may be slow, and one that is refused is rejected.

mod baseline;
mod changes;
mod figure;
mod junit;
mod result;
mod run;

pub use baseline::Baseline;
pub use changes::{FigureChange, FigureSummary, KernelChange, ProgramChange};
pub use figure::{CompiledFigure, FigureUnit, GrowthLimits};
pub use junit::write_compile_junit;
pub use result::{
    COMPILE_RESULT_SCHEMA, CompileResult, CompiledCall, CompiledCandidate, CompiledTarget, Regression, StoreComparison,
};
pub use run::{Follower, compile_module, compile_plan, forecast_module, forecast_plan};
