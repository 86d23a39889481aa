//! The configuration files: which ones are used.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};
use etcetera::BaseStrategy;

use crate::settings::{Setting, SettingsError, SettingsFile, find};

use super::fault::Fault;
use super::say::say;

const VARIABLE: &str = "AUTOTUNE_LOWERED_CONFIG";
/// The user's own file, in `autotune-lowered` in the platform's folder for configurations.
const OWN_FILE_NAME: &str = "config.toml";

/// Which configuration file to use.
#[derive(Debug, Clone, Args)]
pub(super) struct ConfigFileArgs {
    /// Configuration file, which may set everything [default: the nearest `autotune.toml` in the working folder and
    /// those above it, which may set what is harmless] (docs/configuration.md)
    #[arg(long, global = true, value_name = "FILE", env = VARIABLE)]
    pub config: Option<PathBuf>,
    /// Use no configuration file, not even your own
    #[arg(long, global = true)]
    pub no_config: bool,
}

impl From<SettingsError> for Fault {
    fn from(error: SettingsError) -> Self {
        Self::input(error)
    }
}

/// The key that sets an argument.
pub(super) fn setting_of(arg: &Arg) -> Option<&'static Setting> {
    arg.get_long().and_then(Setting::named)
}

/// The files in use, the one with priority first: the named or found one, and the user's own. `shape` is the definition
/// of the whole command line.
pub(super) fn read(args: &ConfigFileArgs, shape: &Command) -> Result<Vec<SettingsFile>, Fault> {
    if args.no_config {
        return Ok(Vec::new());
    }
    let named = args.config.as_deref().map(|path| SettingsFile::named(path).map_err(|error| named_fault(error, path)));
    let named = named.transpose()?;
    // without a home folder there is none
    let own = own_path().map_or(Ok(None), |path| SettingsFile::own(&path))?;
    let nearest = match named {
        Some(file) => Some(file),
        None => found(&|setting| in_force(setting, own.as_ref(), shape))?,
    };
    Ok(nearest.into_iter().chain(own).collect())
}

/// The number that a key has without a found file: that of the user's own file, or the default.
fn in_force(setting: &Setting, own: Option<&SettingsFile>, shape: &Command) -> Option<f64> {
    let own = own.and_then(|file| file.values().iter().find(|value| value.setting == setting));
    let word = match own {
        Some(value) => value.words.first().cloned(),
        None => default(shape, setting),
    };
    word?.to_str()?.parse().ok()
}

/// The default of the first flag that a key sets.
fn default(command: &Command, setting: &Setting) -> Option<std::ffi::OsString> {
    let own = command.get_arguments().find(|arg| setting_of(arg) == Some(setting));
    match own {
        Some(arg) => arg.get_default_values().first().map(|word| word.to_os_string()),
        None => command.get_subcommands().find_map(|command| default(command, setting)),
    }
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
    if is_of_variable { Fault::input(format!("{VARIABLE}: {error}")) } else { Fault::from(error) }
}

/// The nearest file of this user.
fn found(in_force: &dyn Fn(&Setting) -> Option<f64>) -> Result<Option<SettingsFile>, Fault> {
    // a deleted working folder has no parents
    let Some(path) = std::env::current_dir().ok().and_then(|folder| find(&folder)) else { return Ok(None) };
    let file = SettingsFile::found(&path, in_force)?;
    if file.is_none() {
        let path = path.display();
        say(&format!("`{path}` belongs to another user and is ignored; `--config {path}` uses it"));
    }
    Ok(file)
}
