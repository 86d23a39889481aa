//! Files that are written atomically: under a temporary name, on a thread of their own, compressed if requested.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::atomic_write::write_atomic;
use crate::io_hint::io_hint;

/// Number of parts queued for the disk or the compressor.
const WAITING_PARTS: usize = 4;

/// Bytes passed to the other thread at a time, unless more arrive together.
const PART_BYTES: usize = 64 << 10;

/// A trace that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be written: {source}{}", path.display(), io_hint(source))]
pub struct TraceFileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Writes the output of `write` to a temporary file, then renames it, replacing an existing file; missing folders are
/// created. With `is_gzip` it is compressed.
///
/// # Errors
/// If the file cannot be written, or `write` fails; then the old one is intact.
pub fn write_file<T>(
    path: &Path,
    is_gzip: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, TraceFileError> {
    written(path, is_gzip, write).map_err(|source| TraceFileError { path: path.to_owned(), source })
}

fn written<T>(path: &Path, is_gzip: bool, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    write_atomic(path, |file| beside(file, is_gzip, write))
}

/// The output of `write` goes to the file on a thread of its own.
fn beside<T>(file: &mut File, is_gzip: bool, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let (parts, waiting) = sync_channel::<Vec<u8>>(WAITING_PARTS);
    thread::scope(|scope| {
        let store = scope.spawn(move || -> io::Result<()> {
            if is_gzip {
                let mut encoder = GzEncoder::new(file, Compression::fast());
                waiting.iter().try_for_each(|part| encoder.write_all(&part))?;
                encoder.finish().map(drop)
            } else {
                waiting.iter().try_for_each(|part| file.write_all(&part))
            }
        });
        let mut out = BufWriter::with_capacity(PART_BYTES, Parts { parts });
        let result = write(&mut out).and_then(|result| out.flush().map(|()| result));
        // after an error the rest is not written, but the other thread waits for the end
        drop(out.into_parts());
        // an error of the disk explains one of `write`
        store.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread ended")))?;
        result
    })
}

/// Passes the output to the other thread.
struct Parts {
    parts: SyncSender<Vec<u8>>,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // the other thread ends early only after an error, which is the one to report
        self.parts.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/trace.json");
        let write = |text: &'static str| move |out: &mut dyn Write| out.write_all(text.as_bytes());
        write_file(&path, false, write("one")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let failed = write_file(&path, false, |out| {
            out.write_all(b"two")?;
            Err::<(), _>(io::Error::other("planted"))
        });
        assert!(failed.unwrap_err().to_string().contains("cannot be written: planted"));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write_file(&path, true, write("three")).unwrap();
        let mut text = String::new();
        flate2::bufread::GzDecoder::new(&fs::read(&path).unwrap()[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "three");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
