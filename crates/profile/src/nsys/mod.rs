//! Captures of nsys-jax: a zip or a folder to ranges on the GPU and on the host, and the HLO of the programs.
//!
//! nsys-jax (NVIDIA/JAX-Toolbox) runs a program under Nsight Systems and keeps what its recipes make of the report:
//! `nvtx_gpu_proj_trace/trace.parquet` (NVTX ranges, projected on the GPU work that they launched),
//! `thread-metadata.parquet`, `report_nvtx_pushpop_trace.parquet` (or `.csv.xz`), and `dump/*.hlo.pb.xz`. Everything is
//! read into memory, with limits; nothing is written. `docs/nsys.md` has the columns. The feature `nsys` adds the
//! reader, with Parquet, zip and xz.

mod capture;
mod error;
mod range;
#[cfg(feature = "nsys")]
mod read;

pub use capture::NsysCapture;
pub use error::{NsysError, NsysErrorKind};
pub use range::NsysRange;
