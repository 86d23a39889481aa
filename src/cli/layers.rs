//! The sources of a flag's value: the command line, else the environment, else the configuration files.
//!
//! The files' values become defaults of the command's own arguments, so that each is parsed and checked like a flag.

use std::ffi::{OsStr, OsString};

use clap::builder::{Resettable, Styles};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::settings::{Setting, SettingsFile};

use super::args::Cli;
use super::config_file::{ConfigFileArgs, read, setting_of, what_is_wrong};
use super::exit;
use super::fault::Fault;

/// The variable of `--cache`, and its old name.
const CACHE_VARIABLES: [&str; 2] = ["AUTOTUNE_LOWERED_CACHE", "AUTOTUNE_LOWERED_CACHE_DIR"];

/// Why there is no command to run.
pub(super) enum Unparsed {
    /// A message of clap, and the command that it concerns.
    Clap(clap::Error, Box<Command>),
    Fault(Fault),
}

impl From<Fault> for Unparsed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Reads the words of a command line.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, Unparsed> {
    let command = command();
    // a value in the file is not missing
    let lenient = at_every_command(command.clone(), &optional);
    let matches = match lenient.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => {
            // the strict command, for its usage
            let error = command.clone().try_get_matches_from(words).err().unwrap_or(error);
            return Err(Unparsed::Clap(error, Box::new(command)));
        }
    };
    let (names, leaf_matches) = leaf(&matches);
    let command = match leaf_of(&command, &names).filter(|leaf| takes_settings(leaf, &names)) {
        None => command,
        Some(leaf) => {
            let config = ConfigFileArgs::from_arg_matches(&matches);
            let config = config.map_err(|error| Fault::new(exit::USAGE, what_is_wrong(&error)))?;
            let defaults = defaults(&read(&config, &command)?, leaf, leaf_matches)?;
            at_command(command, &names, &|command| with_defaults(command, &defaults))
        }
    };
    parsed(command.clone(), words).map_err(|error| Unparsed::Clap(error, Box::new(command)))
}

/// Parses the words for a command.
pub(super) fn parsed(command: Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    command.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches))
}

/// Whether a file may set arguments of a command. Workers are excluded, because the tuner passes them everything, and the file
/// may change while they run.
fn takes_settings(leaf: &Command, names: &[String]) -> bool {
    names.first().is_none_or(|first| first != "worker") && leaf.get_arguments().any(|arg| setting_of(arg).is_some())
}

/// The definition of the command line. An empty variable counts as unset, and `--cache` has two.
pub(super) fn command() -> Command {
    let [cache, old_cache] = CACHE_VARIABLES;
    let is_set = |name: &OsStr| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    at_every_command(Cli::command(), &|command| {
        command.mut_args(|arg| match arg.get_env() {
            Some(name) if is_set(name) => arg,
            Some(name) if name == cache && is_set(old_cache.as_ref()) => arg.env(old_cache),
            // the help shows the variable's name
            Some(name) if std::env::var_os(name).is_none() => arg,
            Some(_) => arg.env(Resettable::Reset),
            None => arg,
        })
    })
}

/// The same without colours, so that any control character in an error comes from an argument or a variable.
pub(super) fn plain(command: Command) -> Command {
    command.styles(Styles::plain())
}

/// A command's arguments that a file sets.
type Defaults = Vec<(&'static Setting, Vec<OsString>)>;

/// The arguments that the files set, the first file first: those that neither the command line nor the environment sets or conflicts with.
fn defaults(files: &[SettingsFile], leaf: &Command, matches: &ArgMatches) -> Result<Defaults, Fault> {
    let is_explicit = |arg: &Arg| {
        matches!(matches.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let conflict =
        |one: &Arg, other: &Arg| leaf.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id());
    let gives_way = |arg: &Arg| {
        let others = leaf.get_arguments().filter(|other| is_explicit(other));
        is_explicit(arg) || others.into_iter().any(|other| conflict(arg, other) || conflict(other, arg))
    };
    let mut defaults = Defaults::new();
    for (file, value) in files.iter().flat_map(|file| file.values().iter().map(move |value| (file, value))) {
        let Some(arg) = leaf.get_arguments().find(|arg| setting_of(arg) == Some(value.setting)) else { continue };
        // with `--target` the main job measures nothing, so the file must not request that
        let is_forecast = value.setting.key == "target" && !arg.is_required_set();
        let is_set = defaults.iter().any(|(setting, _)| *setting == value.setting);
        if gives_way(arg) || is_forecast || is_set {
            continue;
        }
        let of = |setting: &Setting| leaf.get_arguments().find(|arg| setting_of(arg) == Some(setting));
        let other = defaults
            .iter()
            .find(|(other, _)| of(other).is_some_and(|other| conflict(arg, other) || conflict(other, arg)));
        if let Some((other, _)) = other {
            let message = format!("`{}` and `{}` cannot both be set", other.key, value.setting.key);
            return Err(file.wrong(value, &message).into());
        }
        defaults.push((value.setting, value.words.clone()));
    }
    Ok(defaults)
}

fn with_defaults(command: Command, defaults: &Defaults) -> Command {
    let mut command = command;
    if command
        .get_positionals()
        .any(|arg| setting_of(arg).is_some_and(|of| defaults.iter().any(|(setting, _)| *setting == of)))
    {
        command = command.allow_missing_positional(true);
    }
    command.mut_args(|arg| {
        let of = setting_of(&arg);
        match defaults.iter().find(|(setting, _)| of == Some(*setting)) {
            // these are checked if there is none on the command line
            Some((_, words)) => not_required(arg).default_values(words.iter().cloned()),
            None => arg,
        }
    })
}

fn not_required(arg: Arg) -> Arg {
    arg.required(false).required_unless_present(Resettable::Reset)
}

/// A command whose required arguments may be missing if a file can supply them.
fn optional(command: Command) -> Command {
    let has_one = command.get_positionals().any(|arg| setting_of(arg).is_some());
    let command = if has_one { command.allow_missing_positional(true) } else { command };
    command.mut_args(|arg| if setting_of(&arg).is_some() { not_required(arg) } else { arg })
}

fn at_every_command(command: Command, change: &dyn Fn(Command) -> Command) -> Command {
    change(command).mut_subcommands(|command| at_every_command(command, change))
}

fn at_command(command: Command, names: &[String], change: &dyn Fn(Command) -> Command) -> Command {
    match names.split_first() {
        None => change(command),
        Some((first, rest)) => command.mut_subcommand(first, |command| at_command(command, rest, change)),
    }
}

/// The names of the requested command, and its matches.
fn leaf(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut names, mut at) = (Vec::new(), matches);
    while let Some((name, inner)) = at.subcommand() {
        names.push(name.to_owned());
        at = inner;
    }
    (names, at)
}

fn leaf_of<'a>(command: &'a Command, names: &[String]) -> Option<&'a Command> {
    names.iter().try_fold(command, |command, name| command.find_subcommand(name))
}
