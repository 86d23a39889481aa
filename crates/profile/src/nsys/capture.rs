//! A capture: the traces of one process, and its programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::range::NsysRange;

/// A capture of one process by nsys-jax.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct NsysCapture {
    /// The zip or folder.
    pub path: PathBuf,
    /// The name of the zip or folder, for a combined capture with the process's.
    pub name: String,
    /// Ranges with the time of the GPU work that they launched; `None` if there is no such trace, or it is damaged and
    /// the other one is not.
    pub device_ranges: Option<Vec<NsysRange>>,
    /// Ranges with their time on the host; `None` likewise.
    pub host_ranges: Option<Vec<NsysRange>>,
    /// The device, numbered over all processes, by process and launcher thread.
    pub launchers: BTreeMap<(i64, i64), i64>,
    /// `HloProto`s after optimisation, with their names.
    pub modules: Vec<(String, Vec<u8>)>,
    /// Notes on optional parts that could not be read, one line each.
    pub notes: Vec<String>,
}
