//! Reads a capture: the traces of each process, and their programs.

mod archive;
mod pages;
mod pushpop;
mod table;
mod trace;

use std::collections::BTreeSet;
use std::path::Path;

use self::archive::Archive;
use super::capture::NsysCapture;
use super::error::{NsysError, NsysErrorKind};
use super::range::NsysRange;

const DEVICE_TRACE: &str = "nvtx_gpu_proj_trace/trace.parquet";
const THREADS: &str = "thread-metadata.parquet";
const HOST_TRACE: &str = "report_nvtx_pushpop_trace.parquet";
const OLD_HOST_TRACE: &str = "report_nvtx_pushpop_trace.csv.xz";
/// The name of a program's file in `dump/`.
const LAST_STAGE: &str = "after_optimizations.hlo.pb.xz";

impl NsysErrorKind {
    /// The error at a place.
    pub(super) fn at(self, place: impl Into<String>) -> NsysError {
        NsysError { place: place.into(), kind: self }
    }
}

impl NsysCapture {
    /// Reads a zip or folder of nsys-jax, or one that `nsys-jax-combine` made of several: one capture per process.
    ///
    /// # Errors
    ///
    /// A path that cannot be read, or holds no such capture.
    pub fn open(path: &Path) -> Result<Vec<Self>, NsysError> {
        let mut archive = Archive::open(path)?;
        let processes = processes(archive.names());
        if processes.is_empty() {
            return Err(NsysErrorKind::NoCapture.at(path.display().to_string()));
        }
        let read = |process: &Option<String>| {
            Ok(Self { path: path.to_owned(), ..Self::read(&mut archive, process.as_deref())? })
        };
        processes.iter().map(read).collect()
    }

    fn read(archive: &mut Archive, process: Option<&str>) -> Result<Self, NsysError> {
        let stem = archive.name();
        let name = process.map_or_else(|| stem.clone(), |process| format!("{stem}/{process}"));
        let mut capture = Self { name, ..Self::default() };
        let file = |archive: &Archive, base: &str| {
            let own = process.map(|process| format!("{base}/{process}"));
            let names = archive.names();
            own.filter(|own| names.contains(own)).or_else(|| names.iter().find(|name| *name == base).cloned())
        };
        let mut ranges = |base: &str, read: fn(Vec<u8>) -> Result<Vec<NsysRange>, NsysErrorKind>| {
            let name = file(archive, base)?;
            let bytes = archive.read(&name);
            Some(bytes.and_then(|bytes| read(bytes).map_err(|kind| kind.at(archive.place(&name)))))
        };
        let device = ranges(DEVICE_TRACE, trace::device_ranges);
        let host = ranges(HOST_TRACE, trace::host_ranges)
            .or_else(|| ranges(OLD_HOST_TRACE, |text| pushpop::host_ranges(&text)));
        // one trace is useful without the other
        match (device, host) {
            (Some(Err(error)), None | Some(Err(_))) | (None, Some(Err(error))) => return Err(error),
            (device, host) => {
                for (read, kept) in [(device, &mut capture.device_ranges), (host, &mut capture.host_ranges)] {
                    match read.transpose() {
                        Ok(ranges) => *kept = ranges,
                        Err(error) => capture.notes.push(error.to_string()),
                    }
                }
            }
        }
        match file(archive, THREADS) {
            Some(name) => match archive.read(&name).map(trace::launchers) {
                Ok(Ok(launchers)) => capture.launchers = launchers,
                Ok(Err(kind)) => capture.notes.push(kind.at(archive.place(&name)).to_string()),
                Err(error) => capture.notes.push(error.to_string()),
            },
            None => capture.notes.push(format!("no `{THREADS}`: devices are numbered by thread")),
        }
        let is_own = |name: &&String| {
            let rest = name.strip_prefix("dump/").and_then(|rest| rest.split_once(LAST_STAGE));
            rest.is_some_and(|(_, of)| of.is_empty() || of.strip_prefix('/') == process)
        };
        let programs: Vec<String> = archive.names().iter().filter(is_own).cloned().collect();
        for name in programs {
            match archive.read(&name) {
                Ok(bytes) => capture.modules.push((archive.place(&name), bytes)),
                Err(error) => capture.notes.push(error.to_string()),
            }
        }
        Ok(capture)
    }
}

/// The processes of a capture: one without a name, or, if the traces are folders, one for each file in them.
fn processes(names: &[String]) -> BTreeSet<Option<String>> {
    let mut found = BTreeSet::new();
    for name in names {
        for base in [DEVICE_TRACE, HOST_TRACE, OLD_HOST_TRACE] {
            match name.strip_prefix(base) {
                Some("") => drop(found.insert(None)),
                Some(rest) => found.extend(rest.strip_prefix('/').map(|process| Some(process.to_owned()))),
                None => {}
            }
        }
    }
    // a trace of all processes beside those of each belongs to each
    if found.len() > 1 {
        found.remove(&None);
    }
    found
}
