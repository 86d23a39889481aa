//! `config`: the settings in force and where each comes from, and the acceptance of a file that was found.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::digest::Digest;
use crate::remote::Address;
use crate::report::{FileInForce, SettingInForce, SettingsInForce};
use crate::settings::{FILE_NAME, SETTINGS, Setting, SettingsFile, find};

use super::config_file::{ConfigFile, ConfigFileArgs, argument, read, trusted};
use super::fault::Fault;
use super::options::FormatArg;
use super::say::say;
use super::{cache, exit};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    pub command: Option<ConfigCommand>,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Allow a configuration file, with its present content, to run code and decide trust; prints its digest
    Trust {
        /// The file [default: the `autotune.toml` that is found]
        file: Option<PathBuf>,
        /// Accept it only if it has this digest, as `config` prints it
        #[arg(long, value_name = "DIGEST")]
        digest: Option<Digest>,
    },
}

/// Prints the settings in force, or accepts a file. `shape` is the whole command line's.
pub(super) fn run(
    args: &ConfigArgs,
    file: &ConfigFileArgs,
    shape: &clap::Command,
    out: &mut dyn Write,
) -> Result<u8, Fault> {
    match &args.command {
        None => {
            let file = read(file, shape)?;
            let settings = SETTINGS.iter().map(|setting| in_force(setting, shape, file.as_ref())).collect();
            let file = file.map(|ConfigFile { file, is_named, is_trusted, record }| FileInForce {
                path: file.path().to_owned(),
                digest: file.digest(),
                named: is_named,
                trusted: is_trusted,
                record,
            });
            args.format.write(out, SettingsInForce { file, settings })?;
        }
        Some(ConfigCommand::Trust { file, digest }) => trust(file.clone(), *digest, out)?,
    }
    Ok(exit::FINE)
}

fn trust(file: Option<PathBuf>, wanted: Option<Digest>, out: &mut dyn Write) -> Result<(), Fault> {
    let found = || std::env::current_dir().ok().and_then(|folder| find(&folder));
    let path = file.or_else(found).ok_or_else(|| {
        Fault::input(format!("there is no `{FILE_NAME}` in the working folder or above it; name the file to trust"))
    })?;
    let file = SettingsFile::to_trust(&path)?;
    let (path, digest) = (file.path().display(), file.digest());
    if wanted.is_some_and(|wanted| wanted != digest) {
        return Err(Fault::input(format!("`{path}` has the digest {digest}, not the given one: read it again")));
    }
    let record = trusted()?.accept(&file)?;
    for value in file.values() {
        for word in &value.words {
            if let Some(danger) = value.setting.danger(word, true) {
                let word = shown(value.setting, word);
                say(&format!("trusted: `{}` = `{word}`, which {}", value.setting.key, danger.words()));
            }
        }
    }
    tracing::info!("kept in `{}`", record.display());
    writeln!(out, "{digest}  {path}")?;
    Ok(())
}

/// The default of a key's flag.
fn in_force(setting: &'static Setting, shape: &clap::Command, file: Option<&ConfigFile>) -> SettingInForce {
    let argument = argument(shape, setting);
    let variable = argument.as_ref().and_then(|arg| arg.get_env());
    let variable = variable.and_then(|name| Some((name, std::env::var_os(name)?)));
    let of_file = file.and_then(|of| Some((of, of.file.values().iter().find(|value| value.setting == setting)?)));
    let mut withheld = None;
    let (value, from) = match (variable, of_file) {
        (Some((name, value)), _) => (vec![shown(setting, &value)], name.to_string_lossy().into_owned()),
        (None, Some((of, value))) => {
            let words: Vec<String> = value.words.iter().map(|word| shown(setting, word)).collect();
            let place = format!("{}:{}", of.file.path().display(), value.line);
            let danger = |measures: bool| value.words.iter().find_map(|word| setting.danger(word, measures));
            let refusal = danger(true).filter(|_| !of.is_trusted);
            if let Some(danger) = refusal {
                let (words, what) = (words.join(" "), danger.words());
                withheld = Some(format!("{place}: `{words}` {what}: it needs `autotune-lowered config trust`"));
            }
            match refusal.and(danger(false)) {
                None => (words, place),
                Some(_) => (default(setting, argument.as_ref()), "default".to_owned()),
            }
        }
        (None, None) => (default(setting, argument.as_ref()), "default".to_owned()),
    };
    SettingInForce { key: setting.key, value, from, withheld }
}

fn default(setting: &Setting, argument: Option<&clap::Arg>) -> Vec<String> {
    if setting.key == "cache" {
        return cache::native_folder().into_iter().map(|folder| folder.display().to_string()).collect();
    }
    let values = argument.map(clap::Arg::get_default_values).unwrap_or_default();
    values.iter().map(|value| value.to_string_lossy().into_owned()).collect()
}

/// A value to display: a URL without password.
fn shown(setting: &Setting, value: &OsStr) -> String {
    let text = value.to_string_lossy();
    match Address::parse(&text) {
        Ok(address) if setting.key == "cache" => address.to_string(),
        _ => text.into_owned(),
    }
}
