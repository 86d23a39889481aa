//! Programs compiled for devices that need not be here: which configs a device takes, what each costs it in memory, and
//! executables to measure with where the device is.
//!
//! The vendors' PJRT plugins compile without a device (`PJRT_TopologyDescription_Create`, `PJRT_Compile`). Nothing is run, and nothing is
//! decided: a config that compiles may be slow, one that is refused is out.

mod baseline;
mod junit;
mod result;
mod run;

pub use baseline::Baseline;
pub use junit::write_compile_junit;
pub use result::{
    COMPILE_RESULT_SCHEMA, Comparison, CompileResult, CompiledCall, CompiledCandidate, CompiledTarget, MEMORY_GROWTH,
    Regression,
};
pub use run::{Follower, compile_module, compile_plan, forecast_module, forecast_plan};
