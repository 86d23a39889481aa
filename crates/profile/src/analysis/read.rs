//! Reads captures of either kind from paths.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::outside_file;
use crate::profile::{ProfileError, XSpace, XSpaceCapture, captures};

use super::capture::Capture;
use super::programs::HloFiles;

/// Why captures cannot be read, or not as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// A file of XLA's profiler cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A capture of nsys-jax cannot be used.
    #[error(transparent)]
    Nsys(#[from] crate::nsys::NsysError),
    /// The timeline drawn from a capture of nsys-jax cannot be read back.
    #[error(transparent)]
    Drawn(#[from] crate::profile::ProfileErrorKind),
    /// This program reads no captures of nsys-jax.
    #[error(
        "`{}`: is a capture of nsys-jax, and this program was built without support for these; build it with \
         `--features nsys`",
        .0.display()
    )]
    NotBuilt(PathBuf),
    /// Both kinds at once.
    #[error("XSpaces and captures of nsys-jax are both given; give one kind at a time")]
    TwoKinds,
    /// A capture of nsys-jax, although ejkernel's semantics were requested.
    #[error(
        "`{}`: is a capture of nsys-jax, which ejkernel's profiler cannot read; omit `--compat ejkernel`",
        .0.display()
    )]
    NotOfEjkernel(PathBuf),
}

impl Capture {
    /// Reads captures of one kind. For XLA's profiler: a file, gzip of one, a log folder (its newest run, all hosts),
    /// or `-`, which is standard input. For nsys-jax: a zip or a folder, one per process of one program; `hlo` supplies
    /// programs that these lack.
    ///
    /// # Errors
    /// If a path cannot be read or is not a capture, or if they are of both kinds.
    pub fn read(paths: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Self>, CaptureError> {
        match paths.iter().filter(|path| Self::is_of_nsys(path)).count() {
            0 => {
                let mut found = Vec::new();
                for path in paths {
                    found.extend(spaces(path)?.into_iter().map(Self::from));
                }
                Ok(found)
            }
            of_nsys if of_nsys < paths.len() => Err(CaptureError::TwoKinds),
            _ => of_nsys(paths, hlo),
        }
    }

    /// Whether a path is a zip, or a folder with the files of nsys-jax.
    pub fn is_of_nsys(path: &Path) -> bool {
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
}

fn spaces(path: &Path) -> Result<Vec<XSpaceCapture>, ProfileError> {
    if path != Path::new("-") {
        return captures(path);
    }
    let space = XSpace::from_reader(std::io::stdin().lock(), "standard input")?;
    Ok(vec![XSpaceCapture { path: path.to_owned(), host: String::new(), run_notes: Vec::new(), space }])
}

#[cfg(feature = "nsys")]
fn of_nsys(paths: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Capture>, CaptureError> {
    let mut processes = Vec::new();
    for path in paths {
        processes.extend(crate::nsys::NsysCapture::open(path)?);
    }
    Ok(super::nsys::nsys_captures(processes, hlo)?)
}

#[cfg(not(feature = "nsys"))]
fn of_nsys(paths: &[PathBuf], _: &HloFiles) -> Result<Vec<Capture>, CaptureError> {
    Err(CaptureError::NotBuilt(paths.first().cloned().unwrap_or_default()))
}
