//! The inputs of a profile: XSpaces, or captures of nsys-jax.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::{Capture, HloFiles, SummaryOptions, UserNames, summarize};
use crate::cli::fault::Fault;
use crate::cli::say::say;
use crate::hlo::UserLabels;
use crate::tune::StepProfile;

/// The files of a profile.
#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// XSpaces (`.xplane.pb`), plain or gzipped, log folders of TensorBoard (the newest run, all hosts), or `-`;
    /// captures of nsys-jax, one per process, as a zip or a folder
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

impl CaptureArgs {
    /// Reads them.
    pub(super) fn read(&self, hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
        read_captures(&self.files, hlo)
    }
}

/// Reads captures, and says which run of a log folder they are.
pub(super) fn read_captures(paths: &[PathBuf], hlo: &HloFiles) -> Result<Vec<Capture>, Fault> {
    let captures = Capture::read(paths, hlo)?;
    captures.iter().flat_map(Capture::run_notes).for_each(|note| say(note));
    Ok(captures)
}

/// Where the time of the step to optimise goes.
pub(in crate::cli) fn read_step(
    profile: &Path,
    hlo: &[PathBuf],
    labels: Option<&UserLabels>,
) -> Result<StepProfile, Fault> {
    let files = HloFiles::open(hlo).map_err(Fault::input)?;
    let captures = read_captures(&[profile.to_owned()], &files)?;
    let summary = summarize(
        &captures,
        &files,
        SummaryOptions { names: UserNames::new(labels, None), ..SummaryOptions::default() },
    );
    let place = profile.display().to_string();
    StepProfile::of(place, &summary).ok_or_else(|| {
        Fault::input(format!("`{}`: holds no module execution; profile a step that runs", profile.display()))
    })
}
