//! A zip or a folder as names and bytes. Nothing is unpacked to disk, so names in a zip cannot escape.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use super::super::error::{NsysError, NsysErrorKind};
use crate::outside_file;

/// Maximum size of one file, compressed and decompressed.
const MAX_BYTES: u64 = 4 << 30;
/// Maximum number of files examined.
const MAX_FILES: usize = 1 << 20;
/// Maximum size of an xz stream's dictionary in KiB; presets need at most 64 MiB.
const MAX_XZ_MEMORY: u32 = 256 << 10;
/// Maximum nesting of folders.
const MAX_DEPTH: usize = 3;

/// The location of a capture.
pub(super) enum Archive {
    Zip { path: PathBuf, zip: Box<ZipArchive<BufReader<File>>>, names: Vec<String> },
    Folder { path: PathBuf, names: Vec<String> },
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Self, NsysError> {
        let at = |kind: NsysErrorKind| kind.at(path.display().to_string());
        if path.is_dir() {
            let mut names = Vec::new();
            list(path, "", MAX_DEPTH, &mut names).map_err(|error| at(error.into()))?;
            return Ok(Self::Folder { path: path.to_owned(), names });
        }
        let file = outside_file::open(path, u64::MAX).map_err(|error| at(error.into()))?;
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| at(NsysErrorKind::Zip(error.to_string())))?;
        let names = zip.file_names().take(MAX_FILES).filter_map(Result::ok).map(|name| name.into_owned()).collect();
        Ok(Self::Zip { path: path.to_owned(), zip: Box::new(zip), names })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Zip { path, .. } | Self::Folder { path, .. } => path,
        }
    }

    /// The name of the zip or folder.
    pub(super) fn name(&self) -> String {
        self.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A place in it, for a message.
    pub(super) fn place(&self, name: &str) -> String {
        format!("{}: {name}", self.path().display())
    }

    /// The names in it, folders separated by `/`.
    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Zip { names, .. } | Self::Folder { names, .. } => names,
        }
    }

    /// Reads a file, and expands it where its name ends in `.xz` (or is in a folder whose name does).
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, NsysError> {
        let place = self.place(name);
        let read = |reader: &mut dyn Read| match is_xz(name) {
            true => expand(reader),
            false => bounded(reader),
        };
        match self {
            Self::Folder { path, .. } => {
                let file = outside_file::open(&path.join(name), MAX_BYTES);
                let file = file.map_err(|error| NsysErrorKind::from(error).at(place.clone()))?;
                read(&mut BufReader::new(file))
            }
            Self::Zip { zip, .. } => {
                let entry =
                    zip.by_name(name).map_err(|error| NsysErrorKind::Zip(error.to_string()).at(place.clone()))?;
                let mut entry = BufReader::new(entry);
                read(&mut entry)
            }
        }
        .map_err(|kind| kind.at(place))
    }
}

fn is_xz(name: &str) -> bool {
    name.split('/').any(|part| part.ends_with(".xz"))
}

fn bounded(reader: &mut dyn Read) -> Result<Vec<u8>, NsysErrorKind> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(NsysErrorKind::TooLarge(MAX_BYTES)) } else { Ok(bytes) }
}

fn expand(reader: &mut dyn Read) -> Result<Vec<u8>, NsysErrorKind> {
    let mut xz = lzma_rust2::XzReader::new_mem_limit(reader, true, MAX_XZ_MEMORY);
    bounded(&mut xz).map_err(|kind| match kind {
        NsysErrorKind::Unreadable(error) => NsysErrorKind::Xz(error),
        other => other,
    })
}

/// Lists the files below a folder. Links are followed as the system does: the folder is the user's own.
fn list(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = format!("{prefix}{name}");
        if names.len() >= MAX_FILES {
            break;
        }
        if path.is_dir() {
            // sources and the like are not ours
            let is_ours = ["nvtx_gpu_proj_trace", "thread-metadata", "report_nvtx_pushpop_trace", "dump"];
            if depth > 0 && is_ours.iter().any(|ours| name.starts_with(ours)) {
                list(&path, &format!("{name}/"), depth - 1, names)?;
            }
        } else {
            names.push(name);
        }
    }
    Ok(())
}
