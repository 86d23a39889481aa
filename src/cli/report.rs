//! `report`: a stored run as a page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::io_hint::io_hint;
use crate::outside_file;
use crate::report::{HtmlReport, StepReport, UpgradeReport, write_html, write_step_html, write_upgrade_html};
use crate::tune::{AutotuningResult, stored_results};

use super::exit;
use super::fault::Fault;
use super::output_file::OutputFile;

/// Maximum size of a document.
const MAX_DOCUMENT_BYTES: u64 = 1 << 28;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A cache folder, or what a run, `prove` or `upgrade` printed with `--format json`
    #[arg(value_name = "CACHE|JSON")]
    pub from: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Draws a stored run again.
pub(super) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let subject = args.from.display().to_string();
    let bytes = if args.from.is_dir() { Vec::new() } else { read_bytes(&args.from)? };
    let wrong = |error: serde_json::Error| no_result(&args.from, &error);
    match StoredResult::of(&bytes) {
        StoredResult::Step => {
            let document = serde_json::from_slice(&bytes).and_then(|document| StepReport::read(&subject, document));
            let report = document.map_err(wrong)?;
            OutputFile::at(&args.out, "report")?.write(|out| write_step_html(out, &report))?;
        }
        StoredResult::Upgrade => {
            let result = serde_json::from_slice(&bytes).map_err(wrong)?;
            let report = UpgradeReport { subject: &subject, result: &result };
            OutputFile::at(&args.out, "report")?.write(|out| write_upgrade_html(out, &report))?;
        }
        StoredResult::Run => {
            let results = read_results(&args.from)?;
            let report = HtmlReport { subject: &subject, results: &results };
            OutputFile::at(&args.out, "report")?.write(|out| write_html(out, &report))?;
        }
    }
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
    serde_json::from_slice(&read_bytes(path)?).map_err(|error| no_result(path, &error))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    let unread =
        |error: io::Error| Fault::input(format!("cannot read `{}`: {error}{}", path.display(), io_hint(&error)));
    outside_file::input(path, MAX_DOCUMENT_BYTES).map_err(unread)
}

fn no_result(path: &Path, error: &serde_json::Error) -> Fault {
    let why = without_types(&error.to_string());
    Fault::input(format!("`{}` is not a result of a run: {why}; write one with `--format json`", path.display()))
}

/// Names no type of this program, which means nothing to its user.
fn without_types(message: &str) -> String {
    let mut parts = message.split("expected struct ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("expected an object");
        text.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_'));
    }
    text
}

/// What printed a document, by members that only it has.
enum StoredResult {
    Run,
    Step,
    Upgrade,
}

impl StoredResult {
    /// A run has operations, a step its calls, and an upgrade also two compilers.
    fn of(document: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Members {
            calls: Option<IgnoredAny>,
            operations: Option<IgnoredAny>,
            old: Option<IgnoredAny>,
        }
        match serde_json::from_slice(document) {
            Ok(Members { calls: Some(_), operations: None, old: None }) => Self::Step,
            Ok(Members { calls: Some(_), operations: None, old: Some(_) }) => Self::Upgrade,
            _ => Self::Run,
        }
    }
}
