//! Output files that are written after a run. Before the run they are checked to be writable.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::atomic_write::{folder_of, write_atomic};
use crate::io_hint::io_hint;

use super::fault::Fault;

/// A file to be written: under a temporary name first, then renamed.
pub(super) struct OutputFile<'a> {
    path: &'a Path,
    what: &'static str,
}

impl<'a> OutputFile<'a> {
    /// Fails if the file at a path, described by `what`, cannot be written later.
    pub(super) fn at(path: &'a Path, what: &'static str) -> Result<Self, Fault> {
        let file = Self { path, what };
        if path.is_dir() {
            return Err(file.unwritten(&io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")));
        }
        let folder = file.folder();
        if !folder.exists() {
            return Err(Fault::input(format!(
                "cannot write the {what} `{}`: the folder `{}` does not exist; make it, or choose another",
                path.display(),
                folder.display()
            )));
        }
        // the crate's own opening would add the temporary name to the error
        let open = |path: &Path| File::create_new(path);
        let probe = tempfile::Builder::new().prefix(".tmp-").make_in(folder, open);
        probe.map_err(|error| file.unwritten(&error))?;
        Ok(file)
    }

    /// Writes it.
    pub(super) fn write(&self, write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> Result<(), Fault> {
        let written = write_atomic(self.path, |file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        });
        written.map_err(|error| self.unwritten(&error))
    }

    fn folder(&self) -> &'a Path {
        folder_of(self.path)
    }

    fn unwritten(&self, error: &io::Error) -> Fault {
        Fault::input(format!("cannot write the {} `{}`: {error}{}", self.what, self.path.display(), io_hint(error)))
    }
}
