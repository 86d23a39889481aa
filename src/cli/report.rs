//! `report`: a stored run as a page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::outside_file;
use crate::remedy::remedy;
use crate::report::{HtmlReport, write_html};
use crate::tune::{AutotuningResult, stored_results};

use super::exit;
use super::fault::Fault;
use super::output_file::OutputFile;

/// Maximum size of a document.
const MAX_DOCUMENT_BYTES: u64 = 1 << 28;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A cache folder, or a run's output with `--format json`
    #[arg(value_name = "CACHE|JSON")]
    pub from: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Draws a stored run again.
pub(super) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let results = read_results(&args.from)?;
    let report = HtmlReport { subject: &args.from.display().to_string(), results: &results };
    OutputFile::at(&args.out, "report")?.write(|out| write_html(out, &report))?;
    writeln!(out, "{}", args.out.display())?;
    Ok(exit::FINE)
}

/// The results of a cache folder, or of a document.
pub(super) fn read_results(from: &Path) -> Result<Vec<AutotuningResult>, Fault> {
    let results = if from.is_dir() { stored_results(from)? } else { vec![read_document(from)?] };
    if results.is_empty() {
        let message = format!("`{}` holds no decision: tune a module first", from.display());
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    Ok(results)
}

/// A printed result.
fn read_document(path: &Path) -> Result<AutotuningResult, Fault> {
    let unread =
        |error: io::Error| Fault::input(format!("cannot read `{}`: {error}{}", path.display(), remedy(&error)));
    let bytes = outside_file::input(path, MAX_DOCUMENT_BYTES).map_err(unread)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("`{}` is not a result of a run: {error}; write one with `--format json`", path.display());
        Fault::input(message)
    })
}
