//! Runs on devices: inputs there, programs loaded, outputs taken and compared, times from clocks and profiles.

#[allow(unsafe_code)]
mod buffer;
mod cache_flush;
#[allow(unsafe_code)]
mod executable;
mod inputs;
mod job;
mod kept;
#[allow(unsafe_code)]
mod nvml;
#[allow(unsafe_code)]
mod profiler;
mod program_shardings;
mod restore;
mod sharding;

pub(crate) use buffer::Buffer;
pub(crate) use executable::{DeviceArguments, Executable};
pub(crate) use job::{DeviceJob, RestoredInputs, execute_failure};
pub(crate) use kept::BLOCK_BYTES;
pub(crate) use nvml::Nvml;
pub(crate) use profiler::Profiler;
pub(crate) use program_shardings::ProgramShardings;
