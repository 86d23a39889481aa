//! `cache export` and `cache import`: entries to and from other tools.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};

use crate::cache::{CacheKey, Entry, JsonForm, is_url, shown_url};
use crate::compiler_flags::{FlagVariable, flags_after};
use crate::counted::counted;
use crate::exchange::{
    EjkernelFields, EjkernelImport, TokamaxImport, TokamaxOperations, export_ejkernel, export_flags, export_json_as,
    export_options, export_tokamax, import_ejkernel, import_json_as, import_tokamax,
};
use crate::remote::{Address, Remote};
use crate::report::write_json;

use super::fault::Fault;
use super::options::CacheArgs;
use super::timers::scratch;
use super::{cache, exit, registry};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The tool or format of the files
    #[arg(long, value_enum)]
    pub format: ExchangeArg,
    /// File (`json`, `tokamax`) or folder to write to; other content of a tool's cache files is kept. For `json` also
    /// the URL of a file, as in `s3://bucket/team/configs.json`. Not for `xla-flags`, `libtpu-init-args` and
    /// `options-json`, which are printed
    pub out: Option<PathBuf>,
    /// Only entries of calls whose key begins with this, such as a module's `stablehlo_digest`
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Only entries of devices whose name, as `cache ls` prints it, contains this
    #[arg(long = "for", value_name = "TEXT")]
    pub device: Option<String>,
    /// The tool's own name of the device: ejkernel's `device_kind|platform_version`, Tokamax's `device_kind` [default:
    /// made from the entry]
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Fields of the ejkernel that will read the files, as `python -m autotune_lowered.ejkernel_fields` prints them
    /// [default: those of 0.0.80.3]
    #[arg(long, value_name = "FILE")]
    pub fields: Option<PathBuf>,
    /// Folder of recorded invocations, which hold Tokamax's names for the calls tuned here
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    /// Also what replayed samples decided (`--timer replay:`), which other tools cannot tell from what was measured;
    /// JSON always has it
    #[arg(long)]
    pub replayed: bool,
    #[command(flatten)]
    pub cache: CacheArgs,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The tool or format of the files
    #[arg(long, value_enum)]
    pub format: ExchangeArg,
    /// A file, or a folder of them
    pub path: PathBuf,
    /// Only what belongs to this device, by Tokamax's name; a Tokamax database is then for exactly this kind
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Operations of the Tokamax that wrote the databases, as `python -m autotune_lowered.tokamax_operations` prints
    /// them [default: those of 0.0.12 to 0.0.17]
    #[arg(long, value_name = "FILE")]
    pub operations: Option<PathBuf>,
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// Another tool's cache files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExchangeArg {
    /// The persistent caches of ejkernel, one file per operation
    Ejkernel,
    /// An `AutotuningResult` of Tokamax in a file whose name ends in `.json`, or its databases, one file per operation
    Tokamax,
    /// Entries as JSON in one object, or one per line if the file's name ends in `.jsonl`
    Json,
    /// Entries as JSON, one per line, whatever the file's name
    Jsonl,
    /// The compiler options of one entry as `XLA_FLAGS=…`, after the flags that `XLA_FLAGS` has now; written, not read
    XlaFlags,
    /// The same for a TPU's entry as `LIBTPU_INIT_ARGS=…`
    LibtpuInitArgs,
    /// The compiler options of all entries as a JSON object, by the digest of the program's StableHLO text; written,
    /// not read
    OptionsJson,
}

/// Writes the entries of a cache.
pub(super) fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let ledger = cache::open_for_reading(&args.cache)?;
    let entries = chosen(args, ledger.own_entries()?);
    if let Some(variable) = args.format.variable() {
        return print_flags(&entries, variable, args.out.as_deref(), out);
    }
    if args.format == ExchangeArg::OptionsJson {
        return print_options(&entries, args.out.as_deref(), out);
    }
    let no_file = || Fault::new(exit::USAGE, "name the file or folder to write: `cache export --format FORMAT OUT`");
    let folder_or_file = args.out.as_deref().ok_or_else(no_file)?;
    let fingerprint = args.fingerprint.as_deref();
    let (written, files, tool) = match args.format {
        ExchangeArg::Json | ExchangeArg::Jsonl => {
            let form = json_form(args.format, folder_or_file);
            let shown = match store_of(folder_or_file)? {
                Some((store, name)) => {
                    let scratch = scratch()?;
                    let file = scratch.path().join(name);
                    export_json_as(form, &file, &entries)?;
                    store.put_file(name, &file)?;
                    format!("{}/{name}", store.address())
                }
                None => {
                    export_json_as(form, folder_or_file, &entries)?;
                    folder_or_file.display().to_string()
                }
            };
            writeln!(out, "{shown}")?;
            return Ok(exit::FINE);
        }
        ExchangeArg::Ejkernel => {
            let fields = args.fields.as_deref().map(EjkernelFields::read).transpose()?;
            let export = export_ejkernel(folder_or_file, &entries, fingerprint, fields.as_ref())?;
            for (op_id, reason) in &export.skipped {
                tracing::warn!("`{op_id}` is left out: {reason}");
            }
            for call in &export.other_batch {
                tracing::warn!("other-batch: {call}; ejkernel's keys do not distinguish `vmap`");
            }
            (export.written, export.files, "ejkernel")
        }
        // already printed
        ExchangeArg::XlaFlags | ExchangeArg::LibtpuInitArgs | ExchangeArg::OptionsJson => return Ok(exit::FINE),
        ExchangeArg::Tokamax => {
            let registry = args.registry.as_deref().map(registry::open).transpose()?;
            let mut measured = |key: &CacheKey, entry: &Entry| ledger.to_tokamax(registry.as_ref(), key, entry);
            let export = export_tokamax(folder_or_file, &entries, fingerprint, &mut measured)?;
            for reason in &export.skipped {
                tracing::warn!("left out: {reason}");
            }
            (export.written, export.files, "Tokamax")
        }
    };
    for path in &files {
        writeln!(out, "{}", path.display())?;
    }
    if written == 0 {
        let message = format!("no cached config belongs to an operation that {tool} has");
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    tracing::info!("{} written", counted(written, "config"));
    Ok(exit::FINE)
}

/// The store of a file at a URL, and the file's name there; `None` for a path.
fn store_of(out: &Path) -> Result<Option<(Remote, &str)>, Fault> {
    let Some(url) = out.to_str().filter(|text| is_url(text)) else { return Ok(None) };
    let is_plain = |name: &&str| {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        [".json", ".jsonl"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
            && name.chars().all(is_usual)
    };
    let (folder, name) = url.rsplit_once('/').unwrap_or((url, ""));
    let Some(name) = Some(name).filter(is_plain) else {
        let message = format!(
            "`{}` names no file: give letters, digits and `._-`, and `.json` or `.jsonl` at the end, as in \
             s3://bucket/team/configs.json",
            shown_url(url)
        );
        return Err(Fault::new(exit::USAGE, message));
    };
    Ok(Some((Remote::open(Address::parse(folder)?)?, name)))
}

/// The entries that the arguments choose.
fn chosen(args: &ExportArgs, mut entries: Vec<(CacheKey, Arc<Entry>)>) -> Vec<(CacheKey, Arc<Entry>)> {
    let is_of_device = |key: &CacheKey| args.device.as_ref().is_none_or(|name| key.device.to_string().contains(name));
    let is_of_call = |key: &CacheKey| args.key.as_ref().is_none_or(|start| key.call.call_key.starts_with(start));
    entries.retain(|(key, _)| is_of_device(key) && is_of_call(key));
    if !args.replayed && !matches!(args.format, ExchangeArg::Json | ExchangeArg::Jsonl) {
        let all = entries.len();
        entries.retain(|(_, entry)| !entry.is_replayed());
        if entries.len() < all {
            let skipped = counted(all - entries.len(), "decision");
            tracing::warn!("exported without {skipped} of replayed samples; `--replayed` adds them");
        }
    }
    entries
}

impl ExchangeArg {
    /// The variable to print, if the format is one.
    fn variable(self) -> Option<FlagVariable> {
        match self {
            Self::XlaFlags => Some(FlagVariable::XlaFlags),
            Self::LibtpuInitArgs => Some(FlagVariable::LibtpuInitArgs),
            _ => None,
        }
    }
}

fn print_flags(
    entries: &[(CacheKey, Arc<Entry>)],
    variable: FlagVariable,
    file: Option<&Path>,
    out: &mut dyn Write,
) -> Result<u8, Fault> {
    let name = variable.name();
    if file.is_some() {
        return Err(Fault::new(exit::USAGE, format!("`{name}` is printed: omit the file")));
    }
    let Some(flags) = export_flags(entries, variable)? else {
        let message = format!("no cached entry holds compiler options for `{name}`");
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    };
    let own = match std::env::var(name) {
        Ok(own) => own,
        Err(std::env::VarError::NotPresent) => String::new(),
        Err(error) => return Err(Fault::input(format!("`{name}` of this environment: {error}: unset it"))),
    };
    let Some(all) = flags_after(&own, &flags) else {
        let message = format!("`{name}` of this environment names the file `{own}`: add to it the flags `{flags}`");
        return Err(Fault::input(message));
    };
    writeln!(out, "{name}={all}")?;
    Ok(exit::FINE)
}

fn print_options(entries: &[(CacheKey, Arc<Entry>)], file: Option<&Path>, out: &mut dyn Write) -> Result<u8, Fault> {
    if file.is_some() {
        return Err(Fault::new(exit::USAGE, "`options-json` is printed: omit the file"));
    }
    let Some(options) = export_options(entries)? else {
        return Err(Fault::new(exit::NOTHING_MATCHED, "no cached entry holds compiler options"));
    };
    write_json(out, &options)?;
    Ok(exit::FINE)
}

/// Reads another tool's files into a cache.
pub(super) fn import(args: &ImportArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let ImportArgs { format, path, fingerprint, operations, cache } = args;
    if let Some(url) = path.to_str().filter(|text| is_url(text)) {
        let url = shown_url(url);
        return Err(Fault::input(format!("`{url}` is a URL, and `cache import` reads files: download it first")));
    }
    if *format != ExchangeArg::Tokamax {
        if fingerprint.is_some() {
            return Err(Fault::input(
                "only Tokamax's entries can be selected by a device's name: omit `--fingerprint`",
            ));
        }
        if operations.is_some() {
            return Err(Fault::input("only Tokamax's databases are named after operations: omit `--operations`"));
        }
    }
    let (entries, skipped, notes) = match format {
        ExchangeArg::Ejkernel => {
            let EjkernelImport { entries, skipped } = import_ejkernel(path)?;
            (entries, skipped, Vec::new())
        }
        ExchangeArg::Tokamax => {
            let operations = operations.as_deref().map(TokamaxOperations::read).transpose()?;
            let TokamaxImport { entries, skipped, notes } =
                import_tokamax(path, fingerprint.as_deref(), operations.as_ref())?;
            (entries, skipped, notes)
        }
        ExchangeArg::OptionsJson => {
            return Err(Fault::input("options do not say which device they are for: import entries as `json`"));
        }
        ExchangeArg::XlaFlags | ExchangeArg::LibtpuInitArgs => {
            return Err(Fault::input("flags do not say which program they are for: import entries as `json`"));
        }
        ExchangeArg::Json | ExchangeArg::Jsonl => {
            (import_json_as(json_form(*format, path), path)?, Vec::new(), Vec::new())
        }
    };
    for reason in &skipped {
        tracing::warn!("left out: {reason}");
    }
    for note in &notes {
        tracing::warn!("{note}");
    }
    let ledger = cache::open(cache)?;
    let taken = ledger.import(&entries)?;
    ledger.publish()?;
    writeln!(out, "imported {} of {}", taken, entries.len())?;
    if entries.is_empty() {
        return Err(Fault::new(exit::NOTHING_MATCHED, format!("`{}` holds no config", path.display())));
    }
    Ok(exit::FINE)
}

fn json_form(format: ExchangeArg, path: &Path) -> JsonForm {
    if format == ExchangeArg::Jsonl { JsonForm::Lines } else { JsonForm::of(path) }
}
