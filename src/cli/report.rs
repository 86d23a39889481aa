//! `--report` and `report`: a run as a page.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::outside_file;
use crate::remedy::remedy;
use crate::report::{HtmlReport, write_html};
use crate::tune::{AutotuningResult, stored_results};
use crate::whole_file::write_whole;
use clap::Args;

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
    let bytes = outside_file::input(path, MAX_DOCUMENT_BYTES).map_err(unread)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("`{}` is no result of a run: {error}; write one with `--format json`", path.display());
        Fault::input(message)
    })
}

/// A page that will be written: under another name, and under its own when it is whole.
pub(super) struct ReportFile {
    path: PathBuf,
}

/// Fails where a file at a path, here `what`, cannot be written later.
pub(super) fn check_writable(path: &Path, what: &str) -> Result<(), Fault> {
    if path.is_dir() {
        return Err(Fault::input(format!("`{}` is a folder: name the file to write", path.display())));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder);
    probe.map(drop).map_err(|error| unwritten(path, what, &error))
}

fn unwritten(path: &Path, what: &str, error: &io::Error) -> Fault {
    Fault::input(format!("cannot write the {what} `{}`: {error}{}", path.display(), remedy(error)))
}

impl ReportFile {
    /// A page at a path whose folder can be written.
    pub(super) fn at(path: &Path) -> Result<Self, Fault> {
        check_writable(path, "report")?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes the page.
    pub(super) fn write(&self, subject: &str, results: &[AutotuningResult]) -> Result<(), Fault> {
        let write = |file: &mut File| {
            let mut out = BufWriter::new(file);
            write_html(&mut out, &HtmlReport { subject, results })?;
            out.flush()
        };
        write_whole(&self.path, write).map_err(|error| unwritten(&self.path, "report", &error))
    }
}
