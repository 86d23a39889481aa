//! What a profile is: XSpaces, or captures of nsys-jax.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::{Capture, HloFiles, SummaryOptions, summarize};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::hlo::UserLabels;
use crate::outside_file;
use crate::profile::{XSpace, XSpaceCapture, captures};
use crate::tune::StepProfile;

/// The files of a profile.
#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

impl CaptureArgs {
    /// Reads them.
    pub(super) fn read(&self, hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
        read_any(&self.files, hlo)
    }
}

/// The captures of all files, which are of one kind. `hlo` tells the programs that captures of nsys-jax lack.
pub(super) fn read_any(files: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
    let of_nsys = files.iter().filter(|file| is_nsys(file)).count();
    if of_nsys == 0 {
        let mut captures = Vec::new();
        for file in files {
            captures.extend(read_spaces(file)?);
        }
        return Ok(captures);
    }
    if of_nsys < files.len() {
        let message = "XSpaces and captures of nsys-jax are both given; give one kind at a time";
        return Err(Fault::new(exit::USAGE, message));
    }
    read_nsys(files, hlo)
}

/// Where the time of the step goes that is to become faster.
pub(in crate::cli) fn read_step(
    profile: &Path,
    hlo: &[PathBuf],
    labels: Option<&UserLabels>,
) -> Result<StepProfile, Fault> {
    let files = HloFiles::open(hlo).map_err(Fault::input)?;
    let captures = read_any(&[profile.to_owned()], &files)?;
    let summary = summarize(&captures, &files, SummaryOptions { labels, ..SummaryOptions::default() });
    let place = profile.display().to_string();
    StepProfile::of(place, &summary).ok_or_else(|| {
        Fault::input(format!("`{}`: holds no module execution; profile a step that runs", profile.display()))
    })
}

/// The captures of a file, of standard input (`-`), or of a log folder's newest run.
fn read_spaces(file: &Path) -> Result<Vec<Capture>, Fault> {
    if file == Path::new("-") {
        let space = XSpace::from_reader(std::io::stdin().lock(), "standard input").map_err(Fault::input)?;
        return Ok(vec![XSpaceCapture { path: file.to_owned(), host: String::new(), space }.into()]);
    }
    Ok(captures(file).map_err(Fault::input)?.into_iter().map(Capture::from).collect())
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
fn read_nsys(files: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
    let mut processes = Vec::new();
    for file in files {
        processes.extend(crate::nsys::NsysCapture::open(file).map_err(Fault::input)?);
    }
    crate::analysis::nsys_captures(processes, hlo).map_err(Fault::input)
}

#[cfg(not(feature = "nsys"))]
fn read_nsys(files: &[PathBuf], _: &HloFiles) -> Result<Vec<Capture>, Fault> {
    let file = files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let message = format!(
        "`{file}`: is a capture of nsys-jax, which this program was built without; build it with `--features nsys`"
    );
    Err(Fault::new(exit::USAGE, message))
}
