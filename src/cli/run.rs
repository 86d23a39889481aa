//! From the arguments to a command and its exit code.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::printable::printable;
use crate::sled_store::SLED_OPENER;

use super::args::{Cli, Command};
use super::cache_commands::CacheCommand;
use super::fault::Fault;
use super::layers::{self, Unparsed};
use super::say::say;
use super::{
    bisect, cache_commands, candidates, check, compare, compile, device, exit, logging, measure, meta, profile, prove,
    registry, report, scan, selftest, tune, upgrade, worker,
};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // the store says what is wrong with its folder, and goes on without it
        if std::thread::current().name() != Some(SLED_OPENER) {
            said(panic);
        }
    }));
    let given: Vec<OsString> = std::env::args_os().collect();
    let words = with_main_job(given.clone());
    let (cli, set_by_files) = match layers::parse(&words) {
        Ok(parsed) => parsed,
        Err(Unparsed::Clap(error, _)) if let Some(fault) = mistyped(&error, &given, &words) => return report(fault),
        Err(Unparsed::Clap(error, command)) => return tell(&error, *command, &words),
        Err(Unparsed::Fault(fault)) => return report(fault),
    };
    // the tuner reads a worker's stderr, so there are no colours and no bars
    let bars = logging::start(cli.verbose, !matches!(cli.command, Command::Worker(_)));
    set_by_files.iter().for_each(|set| tracing::info!("{set}"));
    if let Command::Worker(command) = &cli.command {
        return worker::run(command).unwrap_or_else(report);
    }
    let done = stdout().and_then(|out| {
        let mut out = io::BufWriter::new(out);
        let code = run(&cli, &bars, &mut out)?;
        out.flush()?;
        Ok(code)
    });
    done.map_or_else(report, ExitCode::from)
}

/// Puts `tune` before the arguments where no command is named: `autotune-lowered MODULE` is the main job.
pub(super) fn with_main_job(mut words: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    // options before a command
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        at += match word {
            "--config" => 2,
            "--no-config" | "--verbose" => 1,
            _ if word.starts_with("--config=") => 1,
            _ if word.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c == 'v')) => 1,
            _ => break,
        };
    }
    let Some(first) = words.get(at) else { return words };
    let is_own = |word: &OsStr| ["help", "-h", "--help", "-V", "--version"].iter().any(|own| word == *own);
    if !is_own(first) && Cli::command().find_subcommand(first).is_none() {
        words.insert(at, "tune".into());
    }
    words
}

/// The fault of a command's name that is mistyped: then it is taken for the module of the main job, and an argument of
/// the command for one too many.
fn mistyped(error: &clap::Error, given: &[OsString], words: &[OsString]) -> Option<Fault> {
    let at = given.iter().zip(words).position(|(given, word)| given != word)?;
    let name = given.get(at)?.to_str().filter(|name| !Path::new(name).exists())?;
    let likeness = |command: &clap::Command| strsim::jaro_winkler(name, command.get_name());
    let cli = Cli::command();
    let nearest = cli.get_subcommands().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (error.kind() == ErrorKind::UnknownArgument && likeness(nearest) > LIKE).then(|| {
        let message = format!("`{name}` is neither a command nor a file; did you mean `{}`?", nearest.get_name());
        Fault::new(exit::USAGE, message)
    })
}

/// Likeness above which a command was probably meant, between 0 and 1.
const LIKE: f64 = 0.85;

/// Prints an error in one line.
fn report(Fault { code, message }: Fault) -> ExitCode {
    if !message.is_empty() {
        say(&format!("autotune-lowered: {message}"));
    }
    ExitCode::from(code)
}

fn run(cli: &Cli, bars: &indicatif::MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    if !matches!(
        cli.command,
        Command::Completions { .. }
            | Command::Man { .. }
            | Command::Cache(CacheCommand::Get { .. } | CacheCommand::Path { .. })
    ) {
        start_threads()?;
    }
    match &cli.command {
        // for absent devices there is nothing to open
        Command::Tune(args) if !args.targets.is_empty() => compile::forecast(args, bars, out),
        Command::Tune(args) => tune::run(args, bars, out),
        Command::Scan(args) => scan::run(args, out),
        Command::Device(args) => device::run(args, out),
        Command::Registry(command) => registry::run(command, out),
        Command::Candidates(command) => candidates::run(command, out),
        Command::Cache(command) => cache_commands::run(command, out),
        Command::Report(args) => report::run(args, out),
        Command::Compile(args) => compile::run(args, bars, out),
        Command::Check(args) => check::run(args, bars, out),
        Command::Upgrade(args) => upgrade::run(args, bars, out),
        Command::Bisect(args) => bisect::run(args, bars, out),
        Command::Compare(args) => compare::run(args, bars, out),
        Command::Prove(args) => prove::run(args, bars, out),
        Command::Measure(args) => measure::run(args, out),
        Command::Selftest(args) => selftest::run(args, bars, out),
        Command::Profile(command) => profile::run(command, out),
        // it owns stdout, and has already written
        Command::Worker(_) => Ok(exit::FINE),
        Command::Completions { shell } => meta::completions(*shell, out),
        Command::Man { markdown } => meta::man(*markdown, out),
    }
}

/// Starts the threads that share work: where they cannot be started when they are first needed, rayon panics.
fn start_threads() -> Result<(), Fault> {
    rayon::ThreadPoolBuilder::new().build_global().map_err(|error| {
        let what = "the threads that share work cannot be started";
        let next = "raise the limit of processes or of memory, or set RAYON_NUM_THREADS=1";
        Fault::new(exit::DEVICE_TROUBLE, format!("{what}: {error}; {next}"))
    })
}

/// The system's stdout: the standard library's treats an unwritable descriptor as writable.
fn stdout() -> Result<File, Fault> {
    let own = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(io::Error::from)?;
    Ok(File::from(own))
}

/// The commands that there are where one is named that there is not.
fn commands_beside(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let named = words.iter().filter_map(|word| word.to_str()).take_while(|word| word != unknown);
    let group = named.fold(Cli::command(), |command, word| command.find_subcommand(word).cloned().unwrap_or(command));
    let commands: Vec<&str> = group.get_subcommands().map(clap::Command::get_name).collect();
    Some(format!("the commands of `{}`: {}", group.get_name(), commands.join(", ")))
}

/// Prints clap's message: help and the version on stdout. Errors go to stderr and repeat the arguments.
fn tell(error: &clap::Error, command: clap::Command, words: &[OsString]) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // like any other line on stdout, but through clap for its colours
        return match error.print() {
            Ok(()) => ExitCode::from(code),
            Err(error) => ExitCode::from(Fault::from(error).code),
        };
    }
    // parsed again without clap's own colours, so any control character comes from an argument or a variable
    let plain = layers::parsed(layers::plain(command), words);
    let mut text = plain.map_or_else(|error| error.render().ansi().to_string(), |_| String::new());
    let arguments: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // an argument's line breaks cannot be distinguished from clap's
    let broken: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| word.contains(['\n', '\r'])).collect();
    for word in &broken {
        for part in [Some(*word), word.split_once('=').map(|(_, value)| value)].into_iter().flatten() {
            text = text.replace(part, &printable(part));
        }
    }
    if broken.is_empty() && text.lines().all(|line| printable(line) == line) {
        // stderr may be gone, and then the error cannot be reported
        let _ = error.print();
    } else {
        text.lines().for_each(say);
    }
    commands_beside(error, words).iter().for_each(|known| say(known));
    ExitCode::from(code)
}
