//! Reads captures from a path: a file, gzip of one, a log folder of TensorBoard, or a stream.
//!
//! A file is read into memory and not mapped: a profiler may truncate or rewrite it at any time, and touching a mapped
//! page that no longer exists ends the process with SIGBUS, which no check beforehand can prevent. Reading costs one
//! copy, made by all threads at once, and the file's size in memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rayon::prelude::*;

use super::error::{ProfileError, ProfileErrorKind};
use super::runs::host_of;
use super::session::{Session, newest_session};
use super::space::XSpace;
use crate::outside_file::{self, Input};

/// Maximum size of one XSpace. Protobuf libraries write no message beyond 2 GiB.
pub const MAX_SPACE_BYTES: u64 = 4 << 30;

const READ_BYTES: usize = 4 << 20;

/// The profile of one host.
#[derive(Debug)]
#[non_exhaustive]
pub struct XSpaceCapture {
    /// Its path.
    pub path: PathBuf,
    /// The host, by the file's name: `<host>.xplane.pb`.
    pub host: String,
    /// Which run of a log folder it is from, one line each; on the first capture of a folder.
    pub run_notes: Vec<String>,
    /// Its content.
    pub space: XSpace,
}

impl XSpace {
    /// Reads a file, compressed with gzip or not.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, is beyond its bound, or is not an XSpace.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let place = || path.display().to_string();
        read_file(path).and_then(Self::from_bytes).map_err(|kind| ProfileError::new(place(), kind))
    }

    /// Reads a stream to its end, compressed with gzip or not.
    ///
    /// # Errors
    ///
    /// A reader that fails, or bytes that are beyond their bound or no XSpace.
    pub fn from_reader(reader: impl Read, place: &str) -> Result<Self, ProfileError> {
        let read = read_stream(reader, MAX_SPACE_BYTES);
        read.and_then(plain).and_then(Self::from_bytes).map_err(|kind| ProfileError::new(place, kind))
    }
}

/// Reads the captures at a path: one for a file; for a log folder every host's of the newest run. A folder of
/// `.xplane.pb` files is one run.
///
/// # Errors
///
/// A path that cannot be read or holds no capture, and a file that is not an XSpace.
pub fn captures(path: &Path) -> Result<Vec<XSpaceCapture>, ProfileError> {
    let Session { files, mut notes } = session(path)?;
    let open = |file: PathBuf| {
        let (space, run_notes) = (XSpace::open(&file)?, std::mem::take(&mut notes));
        Ok(XSpaceCapture { host: host_of(&file), path: file, run_notes, space })
    };
    files.into_iter().map(open).collect()
}

/// The files that [`captures`] reads.
///
/// # Errors
///
/// A path that cannot be read, or a folder that holds no capture.
pub fn capture_files(path: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    Ok(session(path)?.files)
}

fn session(path: &Path) -> Result<Session, ProfileError> {
    let metadata = fs::metadata(path).map_err(|io| ProfileError::new(path.display().to_string(), io.into()))?;
    match metadata.is_dir() {
        true => newest_session(path),
        false => Ok(Session { files: vec![path.to_owned()], notes: Vec::new() }),
    }
}

fn read_file(path: &Path) -> Result<Bytes, ProfileErrorKind> {
    let file = match outside_file::open_input(path, u64::MAX)? {
        Input::File(file) => file,
        Input::Pipe(pipe) => return plain(read_stream(pipe, MAX_SPACE_BYTES)?),
    };
    let length = file.metadata()?.len();
    // a file of /proc has no length to go by
    if length == 0 {
        return plain(read_stream(file, MAX_SPACE_BYTES)?);
    }
    if length > MAX_SPACE_BYTES {
        return Err(ProfileErrorKind::TooLarge { limit: MAX_SPACE_BYTES });
    }
    let bytes = read_length(&file, length)?;
    if bytes.starts_with(&GZIP) {
        return expanded(&bytes).map(Bytes::from);
    }
    Ok(Bytes::from_owner(bytes))
}

/// Reads as many bytes as a file had when it was checked, on all threads.
fn read_length(file: &File, length: u64) -> Result<memmap2::MmapMut, ProfileErrorKind> {
    let mut bytes = memmap2::MmapMut::map_anon(usize::try_from(length).unwrap_or(usize::MAX))?;
    // without large pages a quarter of the time goes into page faults; a kernel without them ignores this
    let _ = bytes.advise(memmap2::Advice::HugePage);
    bytes.par_chunks_mut(READ_BYTES).enumerate().try_for_each(|(number, part)| {
        file.read_exact_at(part, (number * READ_BYTES) as u64).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ProfileErrorKind::Shrank,
            _ => ProfileErrorKind::Unreadable(error),
        })
    })?;
    Ok(bytes)
}

/// Reads all of a stream, up to a limit.
fn read_stream(reader: impl Read, limit: u64) -> Result<Vec<u8>, ProfileErrorKind> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(ProfileErrorKind::TooLarge { limit }) } else { Ok(bytes) }
}

// no message starts this way: it would be a field of a non-existent wire type
const GZIP: [u8; 2] = [0x1f, 0x8b];

fn plain(bytes: Vec<u8>) -> Result<Bytes, ProfileErrorKind> {
    if bytes.starts_with(&GZIP) { expanded(&bytes).map(Bytes::from) } else { Ok(bytes.into()) }
}

fn expanded(bytes: &[u8]) -> Result<Vec<u8>, ProfileErrorKind> {
    let decoder = flate2::bufread::MultiGzDecoder::new(bytes);
    let inner = read_stream(decoder, MAX_SPACE_BYTES).map_err(|kind| match kind {
        ProfileErrorKind::Unreadable(error) => ProfileErrorKind::Gzip(error),
        other => other,
    })?;
    if inner.starts_with(&GZIP) { Err(ProfileErrorKind::CompressedTwice) } else { Ok(inner) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    // one plane, named `p`
    const SPACE: &[u8] = b"\x0a\x03\x12\x01p";

    #[test]
    fn a_log_folder_gives_every_host_of_its_newest_run() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("plugins/profile");
        for (run, host) in [("2025_01_02_10_00_00", "old"), ("2025_01_03_09_00_00", "b"), ("2025_01_03_09_00_00", "a")]
        {
            fs::create_dir_all(runs.join(run)).unwrap();
            fs::write(runs.join(run).join(format!("{host}.xplane.pb")), SPACE).unwrap();
        }
        fs::create_dir(runs.join("2025_09_09_without_a_file")).unwrap();
        let file = runs.join("2025_01_03_09_00_00/c.xplane.pb.gz");
        fs::write(&file, gzip(SPACE)).unwrap();
        let found = captures(folder.path()).unwrap();
        let hosts: Vec<_> = found.iter().map(|capture| capture.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b", "c"]);
        assert!(found.iter().all(|capture| capture.space.planes().next().unwrap().name() == "p"));
        assert_eq!(captures(&file).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.xplane.pb");
        let kind_of = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            XSpace::open(&file).unwrap_err().kind
        };
        assert!(matches!(kind_of(b""), ProfileErrorKind::Empty));
        assert!(matches!(kind_of(&gzip(b"")), ProfileErrorKind::Empty));
        assert!(matches!(kind_of(&gzip(&gzip(SPACE))), ProfileErrorKind::CompressedTwice));
        assert!(matches!(kind_of(&gzip(SPACE)[..15]), ProfileErrorKind::Gzip(_)));
        assert!(matches!(kind_of(&SPACE[..4]), ProfileErrorKind::Malformed { offset: 2, part: "the XSpace", .. }));
        assert!(matches!(kind_of(b"\x0a\xff\xff\xff\xff\x0f"), ProfileErrorKind::Malformed { .. }));
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(captures(empty.path()).unwrap_err().kind, ProfileErrorKind::NoCapture));
        assert!(matches!(captures(&empty.path().join("none")).unwrap_err().kind, ProfileErrorKind::Unreadable(_)));
        let sparse = File::create(&file).unwrap();
        sparse.set_len(MAX_SPACE_BYTES + 1).unwrap();
        assert!(matches!(XSpace::open(&file).unwrap_err().kind, ProfileErrorKind::TooLarge { .. }));
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; READ_BYTES + 10]).unwrap();
        let length = file.metadata().unwrap().len();
        assert_eq!(read_length(&file, length).unwrap().len() as u64, length);
        for left in [READ_BYTES as u64 + 9, READ_BYTES as u64, 3, 0] {
            file.set_len(left).unwrap();
            assert!(matches!(read_length(&file, length), Err(ProfileErrorKind::Shrank)));
        }
    }

    #[test]
    fn a_stream_is_read_to_a_limit() {
        assert!(matches!(read_stream(io::repeat(1), 10), Err(ProfileErrorKind::TooLarge { limit: 10 })));
        assert_eq!(XSpace::from_reader(SPACE, "standard input").unwrap().planes().len(), 1);
        let error = XSpace::from_reader(&SPACE[..3], "standard input").unwrap_err();
        assert!(error.to_string().starts_with("`standard input`: is not a whole XSpace"), "{error}");
    }
}
