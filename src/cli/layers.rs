//! The sources of a flag's value: the command line, else the environment, else the configuration files.
//!
//! The files' values become defaults of the command's own flags, so that each is parsed and checked like a flag.

use std::ffi::{OsStr, OsString};

use clap::builder::{Resettable, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::hlo::UserLabels;
use crate::settings::{FileValue, SettingsFile};
use crate::target::Target;

use super::args::Cli;
use super::config_file::{ConfigFileArgs, read, setting_of};
use super::exit;
use super::fault::Fault;
use super::tune_args;

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

/// Reads the words of a command line, and says which flags a file set, and where.
pub(super) fn parse(words: &[OsString]) -> Result<(Cli, Vec<String>), Unparsed> {
    let command = command();
    // a value in a file is not missing
    let missing = ErrorKind::MissingRequiredArgument;
    match command.clone().try_get_matches_from(words) {
        Err(error) if error.kind() != missing => return Err(Unparsed::Clap(error, Box::new(command))),
        _ => {}
    }
    let unclapped = |error| Unparsed::Clap(error, Box::new(command.clone()));
    let matches = command.clone().ignore_errors(true).try_get_matches_from(words).map_err(unclapped)?;
    let (names, leaf_matches) = leaf(&matches);
    let leaf = names.iter().try_fold(&command, |command, name| command.find_subcommand(name));
    let Some(leaf) = leaf.filter(|leaf| takes_settings(leaf, &names)) else {
        return parsed(command.clone(), words).map(|cli| (cli, Vec::new())).map_err(unclapped);
    };
    let config = ConfigFileArgs::from_arg_matches(&matches).map_err(|error| Fault::new(exit::USAGE, error))?;
    let files = read(&config, &command)?;
    let defaults = defaults(&files, leaf, leaf_matches)?;
    let with_files = at_command(command.clone(), &names, &|command| with_defaults(command, &defaults));
    match parsed(with_files.clone(), words) {
        Ok(cli) => Ok((cli, defaults.iter().map(|(file, value)| set_by(file, value)).collect())),
        Err(error) => match defaults.iter().find(|(_, value)| concerns(&error, value)) {
            Some((file, value)) => Err(Fault::from(file.wrong(value, &in_a_line(&error))).into()),
            None => Err(Unparsed::Clap(error, Box::new(with_files))),
        },
    }
}

/// Says where a flag is set, without its value, which may hold a password.
fn set_by(file: &SettingsFile, value: &FileValue) -> String {
    format!("`--{}` is set by {}", value.setting.key, file.place(value))
}

/// Parses the words for a command.
pub(super) fn parsed(command: Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    command.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches))
}

/// Whether a file may set arguments of a command. Workers are excluded, because the tuner passes them everything, and
/// the file may change while they run.
fn takes_settings(leaf: &Command, names: &[String]) -> bool {
    names.first().is_none_or(|first| first != "worker") && leaf.get_arguments().any(|arg| setting_of(arg).is_some())
}

/// The definition of the command line. An empty variable counts as unset.
pub(super) fn command() -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let unset = |arg: Arg| if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg };
    at_every_command(Cli::command(), &|command| command.mut_args(unset))
}

/// The same without colours, so that any control character in an error comes from an argument or a variable.
pub(super) fn plain(command: Command) -> Command {
    command.styles(Styles::plain())
}

/// The values that set a command's flags, with their files.
type Defaults<'a> = Vec<(&'a SettingsFile, &'a FileValue)>;

/// The values of the files for flags that neither the command line nor the environment sets or conflicts with. Of two
/// files, the first has priority.
fn defaults<'a>(files: &'a [SettingsFile], leaf: &Command, matches: &ArgMatches) -> Result<Defaults<'a>, Fault> {
    let is_explicit = |arg: &Arg| {
        matches!(matches.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let excludes =
        |one: &Arg, other: &Arg| leaf.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id());
    let conflict = |one: &Arg, other: &Arg| excludes(one, other) || excludes(other, one);
    let of = |value: &FileValue| leaf.get_arguments().find(|arg| setting_of(arg) == Some(value.setting));
    let mut defaults = Defaults::new();
    for (file, value) in files.iter().flat_map(|file| file.values().iter().map(move |value| (file, value))) {
        let Some(arg) = of(value) else { continue };
        // with `--target` the main job measures nothing, so the file must not request that
        let is_forecast = value.setting.key == "target" && !arg.is_required_set();
        let gives_way = leaf
            .get_arguments()
            .any(|other| is_explicit(other) && (other.get_id() == arg.get_id() || conflict(arg, other)));
        if gives_way || is_forecast || defaults.iter().any(|(_, other)| other.setting == value.setting) {
            continue;
        }
        if let Some((_, other)) = defaults.iter().find(|(_, other)| of(other).is_some_and(|other| conflict(arg, other)))
        {
            let message = format!("`{}` and `{}` cannot both be set", other.setting.key, value.setting.key);
            return Err(file.wrong(value, &message).into());
        }
        check(value).map_err(|wrong| file.wrong(value, &wrong))?;
        defaults.push((file, value));
    }
    Ok(defaults)
}

/// Checks the values that are parsed after the command line, for errors of one line.
fn check(value: &FileValue) -> Result<(), String> {
    value.words.iter().map(|word| word.to_string_lossy()).try_for_each(|text| match value.setting.key {
        "search" => tune_args::strategy(&text).map(drop),
        "target" => Target::named(&text).map(drop).map_err(|error| error.to_string()),
        "label-regex" => UserLabels::new(&text).map(drop).map_err(|error| error.to_string()),
        _ => Ok(()),
    })
}

fn with_defaults(command: Command, defaults: &Defaults<'_>) -> Command {
    command.mut_args(|arg| {
        let of = setting_of(&arg);
        match defaults.iter().find(|(_, value)| of == Some(value.setting)) {
            // these are checked if there is none on the command line
            Some((_, value)) => {
                let arg = arg.required(false).required_unless_present(Resettable::Reset);
                arg.default_values(value.words.iter().cloned())
            }
            None => arg,
        }
    })
}

/// Whether an error of clap is about a value of a file.
fn concerns(error: &clap::Error, value: &FileValue) -> bool {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return false };
    flag.strip_prefix("--").and_then(|flag| flag.split([' ', '=']).next()) == Some(value.setting.key)
}

/// An error of clap without its usage.
fn in_a_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    first.split_whitespace().collect::<Vec<_>>().join(" ")
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
