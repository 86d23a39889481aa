//! The configuration file: which one, whether it is trusted, and whether each flag accepts its value.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command};
use etcetera::BaseStrategy;

use crate::candidates::Target;
use crate::hlo::UserLabels;
use crate::settings::{FILE_NAME, FileValue, Found, Kind, Setting, SettingsError, SettingsFile, Trusted, find};

use super::fault::Fault;
use super::say::say;
use super::{exit, named_timer, tune_args};

const VARIABLE: &str = "AUTOTUNE_LOWERED_CONFIG";

/// Which configuration file to use.
#[derive(Debug, Clone, Args)]
pub(super) struct ConfigFileArgs {
    /// Configuration file [default: the nearest `autotune.toml` in the working folder and those above it] (docs/configuration.md)
    #[arg(long, global = true, value_name = "FILE", env = VARIABLE)]
    pub config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long, global = true)]
    pub no_config: bool,
}

/// A configuration file, and how it came to be used.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) file: SettingsFile,
    /// Whether the user named it; otherwise it was found.
    pub(super) is_named: bool,
    /// Whether it may run code and decide trust.
    pub(super) is_trusted: bool,
    /// Why a record of trust is ignored.
    pub(super) record: Option<String>,
}

impl From<SettingsError> for Fault {
    /// One line, with an excerpt if a place in the file is wrong.
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::At { .. } => Self { code: exit::BAD_INPUT, message: error.to_string() },
            _ => Self::input(error),
        }
    }
}

/// The key that sets an argument: that of its flag, or of its name if it has no flag or another one.
pub(super) fn setting_of(arg: &Arg) -> Option<&'static Setting> {
    let of_flag = arg.get_long().and_then(Setting::named);
    of_flag.or_else(|| Setting::named(&arg.get_id().as_str().replace('_', "-")))
}

/// The file in use, if any; that of another user is ignored, with a message. `shape` is the definition of the whole
/// command line.
pub(super) fn read(args: &ConfigFileArgs, shape: &Command) -> Result<Option<ConfigFile>, Fault> {
    if args.no_config {
        return Ok(None);
    }
    let named = args.config.as_deref().map(|path| SettingsFile::named(path).map_err(|error| named_fault(error, path)));
    let named = named.transpose()?;
    let file = match named {
        Some(file) => ConfigFile { file, is_named: true, is_trusted: true, record: None },
        None => match found()? {
            None => return Ok(None),
            Some(file) => {
                // without a home folder nothing can have been accepted
                let trusted = trusted().map_or(Ok(false), |trusted| trusted.has(&file));
                let is_trusted = trusted == Ok(true);
                ConfigFile { file, is_named: false, is_trusted, record: trusted.err() }
            }
        },
    };
    for value in file.file.values() {
        check(shape, value).map_err(|wrong| file.file.wrong(value, &wrong))?;
    }
    Ok(Some(file))
}

/// The fault of a named file; if a variable names it, it is easily overlooked.
fn named_fault(error: SettingsError, path: &Path) -> Fault {
    let is_of_variable = matches!(error, SettingsError::Unreadable { .. })
        && std::env::var_os(VARIABLE).is_some_and(|value| value == path.as_os_str());
    let fault = Fault::from(error);
    match is_of_variable {
        true => Fault { message: format!("{VARIABLE}: {}", fault.message), ..fault },
        false => fault,
    }
}

fn found() -> Result<Option<SettingsFile>, Fault> {
    // a deleted working folder has no parents
    let Some(path) = std::env::current_dir().ok().and_then(|folder| find(&folder)) else { return Ok(None) };
    match SettingsFile::found(&path)? {
        Found::Own(file) => Ok(Some(file)),
        Found::Foreign { path, owner } => {
            let path = path.display();
            say(&format!(
                "`{path}` belongs to another user (number {owner}) and is ignored; `--config {path}` uses it"
            ));
            Ok(None)
        }
    }
}

/// What this user has accepted.
pub(super) fn trusted() -> Result<Trusted, Fault> {
    let strategy = etcetera::base_strategy::choose_native_strategy().map_err(|_| {
        Fault::input(format!("cannot find the home folder, which records which `{FILE_NAME}` is trusted; set HOME"))
    })?;
    Ok(Trusted::in_folder(strategy.data_dir().join("autotune-lowered").join("trusted-configs")))
}

/// Whether a flag would accept a value.
fn check(shape: &Command, value: &FileValue) -> Result<(), String> {
    let Some(arg) = argument(shape, value.setting) else { return Ok(()) };
    let parser = arg.get_value_parser().clone();
    let alone = Command::new("value")
        .no_binary_name(true)
        .disable_help_flag(true)
        .arg(Arg::new("value").allow_hyphen_values(true).value_parser(parser));
    for word in &value.words {
        if value.setting.kind != Kind::Flag {
            alone.clone().try_get_matches_from([word]).map_err(|error| what_is_wrong(&error))?;
        }
        // values that are parsed later, for one-line errors, have their place in a file too
        let text = word.to_string_lossy();
        match value.setting.key {
            "timer" => named_timer::known(&text)?,
            "search" => tune_args::strategy(&text).map(drop)?,
            "target" => Target::named(&text).map(drop).map_err(|error| error.to_string())?,
            "label-regex" => UserLabels::new(&text).map(drop).map_err(|error| error.to_string())?,
            _ => {}
        }
    }
    Ok(())
}

/// An error of clap without its usage.
pub(super) fn what_is_wrong(error: &clap::Error) -> String {
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(known)) if !known.is_empty() => {
            let known: Vec<String> = known.iter().map(|value| format!("`{value}`")).collect();
            format!("expected one of {}", known.join(", "))
        }
        _ => error.source().map_or_else(|| error.kind().to_string(), ToString::to_string),
    }
}

/// The first argument that a key sets.
pub(super) fn argument(command: &Command, setting: &Setting) -> Option<Arg> {
    let own = command.get_arguments().find(|arg| setting_of(arg) == Some(setting)).cloned();
    own.or_else(|| command.get_subcommands().find_map(|command| argument(command, setting)))
}
