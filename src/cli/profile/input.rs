//! What a profile is: XSpaces, or captures of nsys-jax.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::analysis::HloFiles;
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::outside_file;
use crate::profile::Capture;

use super::read_spaces;

/// Profiles of one kind.
pub(super) enum Input {
    /// Of XLA's profiler.
    Spaces(Vec<Capture>),
    /// Of Nsight Systems, through nsys-jax.
    #[cfg(feature = "nsys")]
    Nsys(Vec<crate::nsys::NsysCapture>),
}

/// Opens files that are all of one kind.
pub(super) fn open(files: &[PathBuf]) -> Result<Input, Fault> {
    let of_nsys = files.iter().filter(|file| is_nsys(file)).count();
    if of_nsys == 0 {
        return Ok(Input::Spaces(read_spaces(files)?));
    }
    if of_nsys < files.len() {
        let message = "XSpaces and captures of nsys-jax are both given; give one kind at a time";
        return Err(Fault::new(exit::USAGE, message));
    }
    nsys(files)
}

/// The captures of all files for what draws and adds up executions, whatever took them. `hlo` tells programs that they lack.
#[cfg_attr(not(feature = "nsys"), allow(unused_variables))]
pub(in crate::cli) fn captures(files: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
    match open(files)? {
        Input::Spaces(captures) => Ok(captures),
        #[cfg(feature = "nsys")]
        Input::Nsys(captures) => crate::analysis::nsys_captures(captures, hlo).map_err(Fault::input),
    }
}

/// Whether a path is a zip, or a folder with what nsys-jax writes.
pub(super) fn is_nsys(path: &Path) -> bool {
    if path.is_dir() {
        return ["nvtx_gpu_proj_trace", "report_nvtx_pushpop_trace.parquet", "report_nvtx_pushpop_trace.csv.xz"]
            .iter()
            .any(|name| path.join(name).exists());
    }
    let mut magic = [0; 4];
    path != Path::new("-")
        && outside_file::open(path, u64::MAX).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"PK\x03\x04"
}

#[cfg(feature = "nsys")]
fn nsys(files: &[PathBuf]) -> Result<Input, Fault> {
    let captures: Result<Vec<_>, _> = files.iter().map(|file| crate::nsys::NsysCapture::open(file)).collect();
    captures.map(|captures| Input::Nsys(captures.into_iter().flatten().collect())).map_err(Fault::input)
}

#[cfg(not(feature = "nsys"))]
fn nsys(files: &[PathBuf]) -> Result<Input, Fault> {
    let file = files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let message = format!(
        "`{file}`: is a capture of nsys-jax, which this program was built without; build it with `--features nsys`"
    );
    Err(Fault::new(exit::USAGE, message))
}
