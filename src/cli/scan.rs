//! `scan`: the labels and kernels of a module.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::hlo::{FoundKernel, KernelTemplates, Scan, ScanOptions, UserLabels, scan_path, scan_reader};
use crate::outside_file;

use super::exit;
use super::fault::Fault;
use super::options::{Format, FormatArg, LabelArgs};

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    /// The module, or `-` for standard input
    pub module: PathBuf,
    #[command(flatten)]
    pub labels: LabelArgs,
    #[command(flatten)]
    pub kernels: KernelsArg,
    /// Exit code 9 if a kernel runs on the values that its project takes if nothing is tuned
    #[arg(long)]
    pub fail_on_defaults: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints the labels and kernels; exit code 3 if there are none.
pub(super) fn run(args: &ScanArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let options = ScanOptions::default().user_labels(user_labels(&args.labels)?);
    let scan = scan_module(&args.module, &options.kernels(args.kernels.templates()?))?;
    args.format.write(out, &scan)?;
    out.flush()?;
    // labels before the truncation are printed, but a script must not mistake them for all labels
    refuse_truncated(&scan, &args.module)?;
    Ok(match scan {
        _ if args.fail_on_defaults && scan.kernels.iter().any(FoundKernel::is_on_defaults) => exit::ON_DEFAULTS,
        _ if scan.labels.is_empty() && scan.kernels.is_empty() => exit::NOTHING_MATCHED,
        _ => exit::FINE,
    })
}

/// The user's own templates of kernels.
#[derive(Debug, Clone, Args)]
pub(super) struct KernelsArg {
    /// Also recognise your own kernels: templates of their names (docs/kernels.md)
    #[arg(long, value_name = "FILE")]
    pub kernels: Option<PathBuf>,
}

impl KernelsArg {
    /// Reads them; only the built-in ones if there are none.
    pub(super) fn templates(&self) -> Result<KernelTemplates, Fault> {
        let Some(path) = &self.kernels else { return Ok(KernelTemplates::default()) };
        let wrong = |error: &dyn std::fmt::Display| Fault::input(format!("`--kernels {}`: {error}", path.display()));
        let file = outside_file::open(path, KernelTemplates::MAX_BYTES).map_err(|error| wrong(&error))?;
        let text = outside_file::read_text(file, KernelTemplates::MAX_BYTES).map_err(|error| wrong(&error))?;
        KernelTemplates::of_text(&text).map_err(|error| wrong(&error))
    }
}

/// Prints that a module has no label, so that there is nothing to do.
pub(super) fn nothing_matched(scan: &Scan, format: &FormatArg, out: &mut dyn Write) -> Result<u8, Fault> {
    match format.format {
        Format::Table => writeln!(out, "nothing to tune: the module holds no label")?,
        Format::Json => format.write(out, scan)?,
    }
    Ok(exit::NOTHING_MATCHED)
}

/// A truncated module is not an input to tune.
fn refuse_truncated(scan: &Scan, module: &Path) -> Result<(), Fault> {
    match scan.truncation() {
        Some(diagnosis) => Err(Fault::input(format!("`{}`: {}", module.display(), diagnosis.message))),
        None => Ok(()),
    }
}

/// The user's own labels, if there are any.
pub(super) fn user_labels(labels: &LabelArgs) -> Result<Option<UserLabels>, Fault> {
    let user = labels.label_regex.as_deref().map(UserLabels::new).transpose();
    user.map_err(|error| Fault::new(exit::USAGE, format!("--label-regex: {error}")))
}

/// What is said about a module without labels.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum NoLabels {
    /// Why there are none, and what to do.
    Explained,
    /// Why there are none; the caller gives the advice.
    Advised,
    /// Nothing, because none is needed.
    Ignored,
}

/// Scans a module to its end, and reports what is unusual about it.
pub(super) fn scan_whole(module: &Path, options: &ScanOptions, no_labels: NoLabels) -> Result<Scan, Fault> {
    let scan = scan_module(module, options)?;
    refuse_truncated(&scan, module)?;
    for diagnosis in &scan.diagnosis {
        match no_labels {
            NoLabels::Ignored if diagnosis.is_of_no_label() => {}
            NoLabels::Advised => tracing::warn!("{}: {}", diagnosis.code, diagnosis.without_advice()),
            _ => tracing::warn!("{}: {}", diagnosis.code, diagnosis.message),
        }
    }
    Ok(scan)
}

/// Scans a path, or standard input for `-`.
fn scan_module(module: &Path, options: &ScanOptions) -> Result<Scan, Fault> {
    let scan = if module == Path::new("-") {
        scan_reader(std::io::stdin().lock(), "standard input", options)
    } else {
        scan_path(module, options)
    };
    scan.map_err(Fault::input)
}
