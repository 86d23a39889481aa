//! The configuration files: which ones, and whether each flag accepts its value.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command};
use etcetera::BaseStrategy;

use crate::hlo::UserLabels;
use crate::settings::{FileValue, Found, Kind, Origin, Setting, SettingsError, SettingsFile, find};
use crate::target::Target;

use super::fault::Fault;
use super::say::say;
use super::{exit, tune_args};

const VARIABLE: &str = "AUTOTUNE_LOWERED_CONFIG";
/// The user's own file, in `autotune-lowered` in the platform's folder for configurations.
const OWN_FILE_NAME: &str = "config.toml";

/// Which configuration file to use.
#[derive(Debug, Clone, Args)]
pub(super) struct ConfigFileArgs {
    /// Configuration file, which may set everything [default: the nearest `autotune.toml` in the working folder and those
    /// above it, which may set what is harmless] (docs/configuration.md)
    #[arg(long, global = true, value_name = "FILE", env = VARIABLE)]
    pub config: Option<PathBuf>,
    /// Use no configuration file, not even your own
    #[arg(long, global = true)]
    pub no_config: bool,
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

/// The files in use, the one with priority first: the named or found one, and the user's own. A found one of another user
/// is ignored, with a message. `shape` is the definition of the whole command line.
pub(super) fn read(args: &ConfigFileArgs, shape: &Command) -> Result<Vec<SettingsFile>, Fault> {
    if args.no_config {
        return Ok(Vec::new());
    }
    let named = args.config.as_deref().map(|path| SettingsFile::named(path).map_err(|error| named_fault(error, path)));
    let nearest = match named.transpose()? {
        Some(file) => Some(file),
        None => found()?,
    };
    // without a home folder there is none
    let own = own_path().map_or(Ok(None), |path| SettingsFile::own(&path))?;
    // the working folder may be the one of the user's own file
    let files: Vec<SettingsFile> = nearest.into_iter().chain(own).collect();
    for file in &files {
        for value in file.values() {
            check(shape, value).map_err(|wrong| file.wrong(value, &wrong))?;
            let rule = argument(shape, value.setting).and_then(|arg| rule_without(&arg, value.setting, &files));
            rule.map_or(Ok(()), |rule| file.keep_rule(value, rule))?;
        }
    }
    Ok(files)
}

/// The number that a key has without a found file: that of the user's own file, or the default.
fn rule_without(arg: &Arg, setting: &Setting, files: &[SettingsFile]) -> Option<f64> {
    let own = files.iter().filter(|file| file.origin() == Origin::Own).flat_map(SettingsFile::values);
    let own = own.filter(|value| value.setting == setting).flat_map(|value| &value.words).next();
    let number = own.map(|word| word.to_string_lossy());
    let number = number.or_else(|| arg.get_default_values().first().map(|value| value.to_string_lossy()))?;
    number.parse().ok()
}

/// Where the user's own file is, whether or not there is one.
fn own_path() -> Option<PathBuf> {
    let strategy = etcetera::base_strategy::choose_native_strategy().ok()?;
    Some(strategy.config_dir().join("autotune-lowered").join(OWN_FILE_NAME))
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
        Found::Usable(file) => Ok(Some(file)),
        Found::Foreign { path, owner } => {
            let path = path.display();
            say(&format!(
                "`{path}` belongs to another user (number {owner}) and is ignored; `--config {path}` uses it"
            ));
            Ok(None)
        }
    }
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
