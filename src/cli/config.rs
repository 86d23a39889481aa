//! `config`: the settings in force, and where each comes from.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use clap::Args;

use crate::remote::CachePlace;
use crate::report::{FileInForce, SettingInForce, SettingsInForce};
use crate::settings::{Origin, SETTINGS, Setting, SettingsFile};

use super::config_file::{ConfigFileArgs, argument, read};
use super::fault::Fault;
use super::options::FormatArg;
use super::{cache, exit};

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints the settings in force. `shape` is the whole command line's.
pub(super) fn run(
    args: &ConfigArgs,
    file: &ConfigFileArgs,
    shape: &clap::Command,
    out: &mut dyn Write,
) -> Result<u8, Fault> {
    let files = read(file, shape)?;
    let settings = SETTINGS.iter().map(|setting| in_force(setting, shape, &files)).collect();
    let files = files.iter().map(|file| FileInForce {
        path: file.path().to_owned(),
        digest: file.digest(),
        origin: match file.origin() {
            Origin::Named => "named",
            Origin::Own => "own",
            Origin::Found => "found",
        },
    });
    args.format.write(out, SettingsInForce { files: files.collect(), settings })?;
    Ok(exit::FINE)
}

fn in_force(setting: &'static Setting, shape: &clap::Command, files: &[SettingsFile]) -> SettingInForce {
    let argument = argument(shape, setting);
    let variable = argument.as_ref().and_then(|arg| arg.get_env());
    let variable = variable.and_then(|name| Some((name, std::env::var_os(name)?)));
    let mut values = files.iter().flat_map(|file| file.values().iter().map(move |value| (file, value)));
    let (value, from) = match (variable, values.find(|(_, value)| value.setting == setting)) {
        (Some((name, value)), _) => (vec![shown(setting, &value)], name.to_string_lossy().into_owned()),
        (None, Some((file, value))) => {
            let words = value.words.iter().map(|word| shown(setting, word)).collect();
            (words, format!("{}:{}", file.path().display(), value.line))
        }
        (None, None) => (default(setting, argument.as_ref()), "default".to_owned()),
    };
    SettingInForce { key: setting.key, value, from }
}

/// The default of a key's flag.
fn default(setting: &Setting, argument: Option<&clap::Arg>) -> Vec<String> {
    if setting.key == "cache" {
        return cache::native_folder().into_iter().map(|folder| folder.display().to_string()).collect();
    }
    let values = argument.map(clap::Arg::get_default_values).unwrap_or_default();
    values.iter().map(|value| value.to_string_lossy().into_owned()).collect()
}

/// A value to display: a URL without password.
fn shown(setting: &Setting, value: &OsStr) -> String {
    match CachePlace::parse(Path::new(value)) {
        Ok(CachePlace::Shared(address)) if setting.key == "cache" => address.to_string(),
        _ => value.to_string_lossy().into_owned(),
    }
}
