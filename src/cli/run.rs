//! From the arguments to a command and its exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command};
use super::fault::Fault;
use super::{
    RunTrace, bench, cache, candidates, check, device, logging, measure, meta, profile, registry, report, scan,
    selftest, tune, worker,
};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // a worker's stderr belongs to the tuner that reads it: no colours, no bars
    let trace = cli.tune.trace_run.as_ref().filter(|_| cli.command.is_none()).map(|_| RunTrace::begin());
    let bars = logging::start(cli.verbose, !matches!(cli.command, Some(Command::Worker(_))), trace.as_ref());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match &cli.command {
        None => tune::run(&cli.tune, &bars, trace.as_ref(), &mut out),
        Some(Command::Scan(args)) => scan::run(args, &mut out),
        Some(Command::Device(args)) => device::run(args, &mut out),
        Some(Command::Registry(command)) => registry::run(command, &mut out),
        Some(Command::Candidates(command)) => candidates::run(command, &mut out),
        Some(Command::Cache(command)) => cache::run(command, &mut out),
        Some(Command::Report(args)) => report::run(args, &mut out),
        Some(Command::Check(args)) => check::run(args, &bars, &mut out),
        Some(Command::Measure(args)) => measure::run(args, &mut out),
        Some(Command::Selftest(args)) => selftest::run(args, &bars, &mut out),
        Some(Command::Profile(command)) => profile::run(command, &mut out),
        Some(Command::Bench(command)) => bench::run(command, &mut out),
        Some(Command::Worker(command)) => {
            drop(out);
            return worker::run(command);
        }
        Some(Command::Completions { shell }) => meta::completions(*shell, &mut out),
        Some(Command::Man) => meta::man(&mut out),
    };
    let done = done.and_then(|code| out.flush().map(|()| code).map_err(Fault::from));
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Fault { code, message, .. }) => {
            if !message.is_empty() {
                // stderr may be gone; there is nobody left to tell
                let _ = writeln!(io::stderr(), "autotune-lowered: {message}");
            }
            ExitCode::from(code)
        }
    }
}
