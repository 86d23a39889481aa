//! From the arguments to a command and its exit code.

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::printable::printable;

use super::args::{Cli, Command};
use super::fault::Fault;
use super::say::say;
use super::{
    cache_commands, candidates, check, compare, compile, device, exit, logging, measure, meta, profile, prove,
    registry, report, scan, selftest, tune, worker,
};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return tell(&error),
    };
    // a worker's stderr belongs to the tuner that reads it: no colours, no bars
    let bars = logging::start(cli.verbose, !matches!(cli.command, Some(Command::Worker(_))));
    if let Some(Command::Worker(command)) = &cli.command {
        return worker::run(command).unwrap_or_else(told);
    }
    let done = stdout().and_then(|out| {
        let mut out = io::BufWriter::new(out);
        let code = run(&cli, &bars, &mut out)?;
        out.flush()?;
        Ok(code)
    });
    done.map_or_else(told, ExitCode::from)
}

/// Says what is wrong.
fn told(Fault { code, message }: Fault) -> ExitCode {
    if !message.is_empty() {
        say(&format!("autotune-lowered: {message}"));
    }
    ExitCode::from(code)
}

fn run(cli: &Cli, bars: &indicatif::MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    match &cli.command {
        None => tune::run(&cli.tune, bars, out),
        Some(Command::Scan(args)) => scan::run(args, out),
        Some(Command::Device(args)) => device::run(args, out),
        Some(Command::Registry(command)) => registry::run(command, out),
        Some(Command::Candidates(command)) => candidates::run(command, out),
        Some(Command::Cache(command)) => cache_commands::run(command, out),
        Some(Command::Report(args)) => report::run(args, out),
        Some(Command::Compile(args)) => compile::run(args, bars, out),
        Some(Command::Check(args)) => check::run(args, bars, out),
        Some(Command::Compare(args)) => compare::run(args, bars, out),
        Some(Command::Prove(args)) => prove::run(args, bars, out),
        Some(Command::Measure(args)) => measure::run(args, out),
        Some(Command::Selftest(args)) => selftest::run(args, bars, out),
        Some(Command::Profile(command)) => profile::run(command, out),
        // it owns stdout, and has gone its way
        Some(Command::Worker(_)) => Ok(exit::FINE),
        Some(Command::Completions { shell }) => meta::completions(*shell, out),
        Some(Command::Man) => meta::man(out),
    }
}

/// Stdout as the system has it: the standard library's takes a descriptor that cannot be written for one that can.
fn stdout() -> Result<File, Fault> {
    let own = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(io::Error::from)?;
    Ok(File::from(own))
}

/// What clap has to say: help and the version on stdout, and on stderr what is wrong with the arguments, which it repeats.
fn tell(error: &clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // as any other line on stdout, but through clap for its colours
        return match error.print() {
            Ok(()) => ExitCode::from(code),
            Err(error) => ExitCode::from(Fault::from(error).code),
        };
    }
    // once more without clap's own colours: what steers the terminal now is an argument's or a variable's
    let plain =
        Cli::command().styles(Styles::plain()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let mut text = plain.map_or_else(|error| error.render().ansi().to_string(), |_| String::new());
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    // an argument's line breaks look like clap's
    let broken: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| word.contains(['\n', '\r'])).collect();
    for word in &broken {
        for part in [Some(*word), word.split_once('=').map(|(_, value)| value)].into_iter().flatten() {
            text = text.replace(part, &printable(part));
        }
    }
    if broken.is_empty() && text.lines().all(|line| printable(line) == line) {
        // stderr may be gone; there is nobody left to tell
        let _ = error.print();
    } else {
        text.lines().for_each(say);
    }
    ExitCode::from(code)
}
