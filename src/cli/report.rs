//! `--report`: a run as a page.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::remedy::remedy;
use crate::report::{HtmlReport, write_html};
use crate::tune::AutotuningResult;

use super::fault::Fault;

/// A page that will be written: under another name, and under its own when it is whole.
pub(super) struct ReportFile {
    path: PathBuf,
    folder: PathBuf,
}

impl ReportFile {
    /// A page at a path whose folder can be written.
    pub(super) fn at(path: &Path) -> Result<Self, Fault> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = Self { path: path.to_owned(), folder: folder.to_owned() };
        if path.is_dir() {
            return Err(Fault::input(format!("`{}` is a folder: name the file to write", path.display())));
        }
        file.begin().map(drop).map_err(|error| file.fault(&error))?;
        Ok(file)
    }

    /// Writes the page.
    pub(super) fn write(&self, subject: &str, results: &[AutotuningResult]) -> Result<(), Fault> {
        let write = || -> io::Result<()> {
            let mut temporary = self.begin()?;
            let mut out = BufWriter::new(&mut temporary);
            write_html(&mut out, &HtmlReport { subject, results })?;
            out.flush()?;
            drop(out);
            temporary.as_file().sync_all()?;
            temporary.persist(&self.path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| self.fault(&error))
    }

    fn begin(&self) -> io::Result<NamedTempFile> {
        let everyone = Permissions::from_mode(0o666);
        tempfile::Builder::new().prefix(".tmp-").permissions(everyone).tempfile_in(&self.folder)
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::input(format!("cannot write the report `{}`: {error}{}", self.path.display(), remedy(error)))
    }
}
