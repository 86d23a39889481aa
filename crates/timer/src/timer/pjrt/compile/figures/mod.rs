//! Figures of compiled programs: what the plugin reports, a GPU's machine code, and a TPU compiler's dump.

mod gpu_code;
pub(crate) mod llo;
mod of_executable;

pub use gpu_code::{UnknownKernels, kernels_of};
pub(crate) use of_executable::{described, work_of, write_file, written};
