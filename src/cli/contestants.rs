//! Contestants on the command line: modules, each followed by its own options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

use super::option_setting::named;

const MODULE: &str = "modules";
const OPTIONS: &str = "options";
const PLUGIN: &str = "with_plugin";
const TIMER: &str = "with_timer";

/// A module and the options that follow it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContestantArgs {
    pub(super) module: PathBuf,
    /// Options of the compiler, by name.
    pub(super) options: BTreeMap<String, String>,
    /// A plugin of its own.
    pub(super) plugin: Option<PathBuf>,
    /// A timer of its own.
    pub(super) timer: Option<String>,
}

/// The modules in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contestants(pub(super) Vec<ContestantArgs>);

impl Args for Contestants {
    fn augment_args(command: Command) -> Command {
        let module = Arg::new(MODULE)
            .value_name("MODULE")
            .help(
                "Two or more programs, StableHLO text or bytecode or a serialized HloModuleProto; one may be \
                 repeated, with other options",
            )
            .required(true)
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf));
        let own = |id: &'static str, long: &'static str, value: &'static str| {
            Arg::new(id).long(long).value_name(value).action(ArgAction::Append)
        };
        let options = own(OPTIONS, "options", "NAME=VALUE…").allow_hyphen_values(true).help(
            "Compiler options for the MODULE before this: one or more `NAME=VALUE`, separated by blanks; may be \
             repeated",
        );
        let plugin = own(PLUGIN, "with-plugin", "PATH")
            .value_parser(value_parser!(PathBuf))
            .help("PJRT plugin for the MODULE before this");
        let timer = own(TIMER, "with-timer", "TIMER").help("Timer for the MODULE before this, as for --timer");
        command.arg(module).arg(options).arg(plugin).arg(timer)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Contestants {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let modules = placed::<PathBuf>(matches, MODULE);
        let mut found: Vec<ContestantArgs> =
            modules.iter().map(|(_, module)| ContestantArgs { module: module.clone(), ..Default::default() }).collect();
        let places: Vec<usize> = modules.iter().map(|(place, _)| *place).collect();
        if let [_] = found.as_slice() {
            let message = "one MODULE cannot be compared with anything: name two or more, or the same one twice\n";
            return Err(Error::raw(ErrorKind::TooFewValues, message));
        }
        for (at, text) in placed::<String>(matches, OPTIONS) {
            let contestant = before(&mut found, &places, at, "--options")?;
            for (name, value) in options(&text)? {
                if contestant.options.insert(name.clone(), value).is_some() {
                    return Err(wrong(&format!("`--options`: `{name}` is given twice for one MODULE")));
                }
            }
        }
        for (at, plugin) in placed::<PathBuf>(matches, PLUGIN) {
            before(&mut found, &places, at, "--with-plugin")?.plugin = Some(plugin);
        }
        for (at, timer) in placed::<String>(matches, TIMER) {
            before(&mut found, &places, at, "--with-timer")?.timer = Some(timer);
        }
        Ok(Self(found))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of an argument, each with its position.
fn placed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<(usize, T)> {
    let values = matches.get_many::<T>(id).into_iter().flatten().cloned();
    matches.indices_of(id).into_iter().flatten().zip(values).collect()
}

/// The last contestant before a position.
fn before<'a>(
    found: &'a mut [ContestantArgs],
    places: &[usize],
    at: usize,
    what: &str,
) -> Result<&'a mut ContestantArgs, Error> {
    let last = places.iter().rposition(|place| *place < at);
    last.and_then(|last| found.get_mut(last)).ok_or_else(|| {
        wrong(&format!("`{what}` belongs to the MODULE before it, and there is none: give it after one"))
    })
}

fn wrong(message: &str) -> Error {
    Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
}

/// `NAME=VALUE` with blanks between them, also spelled `--NAME=VALUE` as in `XLA_FLAGS`.
fn options(text: &str) -> Result<Vec<(String, String)>, Error> {
    let found: Result<Vec<(String, String)>, Error> = text
        .split_whitespace()
        .map(|word| {
            let (name, value) =
                named(word).ok_or_else(|| wrong(&format!("`--options`: `{word}` is not `NAME=VALUE`")))?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect();
    found.and_then(|found| if found.is_empty() { Err(wrong("`--options` is empty")) } else { Ok(found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Vec<ContestantArgs>, String> {
        let command = Contestants::augment_args(Command::new("compare").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        Contestants::from_arg_matches(&matches).map(|found| found.0).map_err(|error| error.to_string())
    }

    #[test]
    fn what_follows_a_module_is_its_own() {
        let found = parsed(&[
            "a,b{c}=d@e.mlir",
            "step.mlir",
            "--options",
            "--xla_a=1 xla_b=x=y",
            "--options=xla_c=True",
            "step.mlir",
            "--with-plugin",
            "other.so",
            "--with-timer=jax",
        ])
        .unwrap();
        let options = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let expected = [
            ContestantArgs { module: "a,b{c}=d@e.mlir".into(), ..Default::default() },
            ContestantArgs {
                module: "step.mlir".into(),
                options: options(&[("xla_a", "1"), ("xla_b", "x=y"), ("xla_c", "True")]),
                ..Default::default()
            },
            ContestantArgs {
                module: "step.mlir".into(),
                plugin: Some("other.so".into()),
                timer: Some("jax".to_owned()),
                ..Default::default()
            },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_belongs_to_no_module_or_is_none_is_refused() {
        for (arguments, message) in [
            (&["a"][..], "two or more"),
            (&["--options", "x=1", "a", "b"], "belongs to the MODULE before it"),
            (&["--with-plugin", "x", "a", "b"], "belongs to the MODULE before it"),
            (&["a", "b", "--options", "x"], "`x` is not `NAME=VALUE`"),
            (&["a", "b", "--options", "=1"], "`=1` is not `NAME=VALUE`"),
            (&["a", "b", "--options", " "], "is empty"),
            (&["a", "b", "--options", "x=1 x=2"], "given twice"),
        ] {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(message), "{arguments:?}: {error}");
        }
    }
}
