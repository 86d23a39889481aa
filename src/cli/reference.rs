//! The reference of the command line, generated from clap's definition: `docs/cli.md`.

use std::fmt::Write;

use clap::{Arg, Command};

use super::exit;

/// All commands and their arguments as Markdown.
pub(super) fn reference(mut command: Command) -> String {
    command.build();
    let mut text = String::from(
        "# The command line\n\n`autotune-lowered man --markdown` prints this page, and `autotune-lowered COMMAND \
         --help` one command of it.\n\n\
         These flags may stand before and after every command:\n\n",
    );
    command.get_arguments().filter(|arg| arg.is_global_set()).for_each(|arg| describe_argument(arg, &mut text));
    text += "\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n";
    exit::TABLE.iter().for_each(|(code, meaning)| text += &format!("| {code} | {meaning} |\n"));
    command.get_subcommands().for_each(|command| describe(command, &mut text));
    text
}

/// A command and its subcommands. One that only groups others has no usage of its own.
fn describe(command: &Command, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(|about| sentence(&about.to_string()));
    // writing to a string never fails
    let _ = write!(text, "\n## {name}\n\n{}\n", about.unwrap_or_default());
    let below = || command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    if below().next().is_none() || !command.is_subcommand_required_set() {
        let usage = command.clone().render_usage().to_string();
        let _ = write!(text, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    }
    let of_all = ["help", "version"];
    let own = |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set() && !of_all.contains(&arg.get_id().as_str());
    if command.get_arguments().any(|arg| own(&arg)) {
        text.push('\n');
    }
    command.get_arguments().filter(own).for_each(|arg| describe_argument(arg, text));
    below().for_each(|command| describe(command, text));
}

fn describe_argument(arg: &Arg, text: &mut String) {
    let short = arg.get_short().filter(|_| arg.get_long().is_some()).map(|short| format!("-{short}, "));
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "* `{}{arg}`: {}", short.unwrap_or_default(), sentence(&help));
    if arg.get_action().takes_values() {
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        if !defaults.is_empty() {
            let _ = write!(text, " Default: {}.", defaults.join(", "));
        }
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Environment: `{}`.", variable.to_string_lossy());
    }
    text.push('\n');
    if arg.get_action().takes_values() {
        for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let meaning = value.get_help().map(|help| format!(": {}", sentence(&help.to_string())));
            let _ = writeln!(text, "  * `{}`{}", value.get_name(), meaning.unwrap_or_default());
        }
    }
}

/// On one line, with a full stop.
fn sentence(help: &str) -> String {
    let line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() || line.ends_with(['.', ']', '?']) { line } else { line + "." }
}
