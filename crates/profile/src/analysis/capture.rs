//! The input of an analysis: a capture of XLA's profiler, or one of nsys-jax.

use std::path::{Path, PathBuf};

use regex::bytes::Regex;

use crate::profile::{
    DeviceTime, Execution, Finding, Plane, Profiler, Timings, XSpace, XSpaceCapture, executions_folded,
    executions_of_operations,
};
use crate::stats::Moments;

use super::nsys::NsysProfile;

/// The profile of one host or process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Capture {
    /// A capture of XLA's profiler.
    XSpace(XSpaceCapture),
    /// A capture of nsys-jax; [`nsys_captures`](super::nsys_captures) creates it.
    Nsys(Box<NsysProfile>),
}

impl From<XSpaceCapture> for Capture {
    fn from(capture: XSpaceCapture) -> Self {
        Self::XSpace(capture)
    }
}

impl Capture {
    /// The capture of a host by XLA's profiler, read from `path`.
    pub fn xspace(path: impl Into<PathBuf>, host: impl Into<String>, space: XSpace) -> Self {
        Self::XSpace(XSpaceCapture { path: path.into(), host: host.into(), run_notes: Vec::new(), space })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::XSpace(capture) => &capture.path,
            Self::Nsys(profile) => &profile.path,
        }
    }

    /// The host, from the file's name; for a capture of nsys-jax the process.
    pub fn host(&self) -> &str {
        match self {
            Self::XSpace(capture) => &capture.host,
            Self::Nsys(profile) => &profile.host,
        }
    }

    /// The host, or the path where it has no name.
    pub fn host_or_path(&self) -> String {
        match self.host() {
            "" => self.path().display().to_string(),
            host => host.to_owned(),
        }
    }

    /// Which run of a log folder was read, and what was not, one line each.
    pub fn run_notes(&self) -> &[String] {
        match self {
            Self::XSpace(capture) => &capture.run_notes,
            Self::Nsys(_) => &[],
        }
    }

    /// Its planes as a timeline. Totals come from [`Capture::executions`]: the planes of a capture of nsys-jax are
    /// drawn from its ranges, and have less information.
    pub fn timeline(&self) -> &XSpace {
        match self {
            Self::XSpace(capture) => &capture.space,
            Self::Nsys(profile) => &profile.timeline,
        }
    }

    /// The importer's warnings; other warnings are found with the executions.
    pub fn import_findings(&self) -> &[Finding] {
        match self {
            Self::XSpace(_) => &[],
            Self::Nsys(profile) => profile.findings(),
        }
    }

    /// The module executions, by plane, device and start.
    pub fn executions(&self) -> DeviceTime {
        self.executions_folded(&mut |_, _| {})
    }

    /// The same, with a callback for each execution before it is stored, with the times of each run of its operations,
    /// in their order, if the capture has them: nanoseconds. A callback that takes the operations away limits memory to
    /// those of the executions in progress.
    pub fn executions_folded<'c>(&'c self, fold: &mut dyn FnMut(&mut Execution, &'c [Moments])) -> DeviceTime {
        match self {
            Self::XSpace(capture) => executions_folded(&capture.space, &mut |execution| fold(execution, &[])),
            Self::Nsys(profile) => profile.executions_folded(fold),
        }
    }

    /// The same, but [`Execution::busy_ps`] covers only operations whose names match.
    pub fn executions_of_operations(&self, wanted: &Regex) -> DeviceTime {
        match self {
            Self::XSpace(capture) => executions_of_operations(&capture.space, wanted),
            Self::Nsys(profile) => profile.executions_of_operations(wanted),
        }
    }

    /// The samples of one plane of its timeline, given its executions. `None` if the semantics are ejkernel's
    /// and there is no XSpace that ejkernel could read.
    pub fn timings(&self, profiler: &Profiler, plane: Plane<'_>, time: &DeviceTime) -> Option<Timings> {
        match self {
            Self::XSpace(_) => Some(profiler.timings(plane, time)),
            Self::Nsys(profile) => profile.timings(profiler, plane, time),
        }
    }

    /// Whether the first execution of a program on a device is warm-up, as far as this capture shows.
    pub(super) fn has_warm_up(&self, module: &str, program_id: Option<i64>) -> bool {
        match self {
            Self::XSpace(_) => true,
            Self::Nsys(profile) => profile.has_compiled(module, program_id),
        }
    }
}
