//! `--report` and `report`: a run as a page.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::NamedTempFile;

use crate::remedy::remedy;
use crate::report::{HtmlReport, write_html};
use crate::tune::{AutotuningResult, stored_results};

use super::exit;
use super::fault::Fault;

/// The largest document that is read.
const MAX_DOCUMENT_BYTES: u64 = 1 << 28;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A cache folder, or what `--format json` printed of a run
    #[arg(value_name = "CACHE|JSON")]
    pub from: PathBuf,
    /// What to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Draws a stored run again.
pub(super) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let results = if args.from.is_dir() { stored_results(&args.from)? } else { vec![read_document(&args.from)?] };
    if results.is_empty() {
        let message = format!("`{}` holds no decision: tune a module first", args.from.display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    ReportFile::at(&args.out)?.write(&args.from.display().to_string(), &results)?;
    writeln!(out, "{}", args.out.display())?;
    Ok(exit::FINE)
}

/// A result as it was printed.
fn read_document(path: &Path) -> Result<AutotuningResult, Fault> {
    let unread =
        |error: io::Error| Fault::input(format!("cannot read `{}`: {error}{}", path.display(), remedy(&error)));
    let file = File::open(path).map_err(unread)?;
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(Fault::input(format!("`{}` is neither a cache folder nor a file", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(Fault::input(format!(
            "`{}` is larger than the {MAX_DOCUMENT_BYTES} bytes that are read",
            path.display()
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("`{}` is no result of a run: {error}; write one with `--format json`", path.display());
        Fault::input(message)
    })
}

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
