//! `worker …`: the hidden commands that worker processes are started with.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::timer::exec::{self, ExecOptions};
use crate::timer::pjrt::{PjrtWorkerOptions, worker_main};
use crate::timer::{Limits, WorkerCommand, conformance};

/// Runs `worker exec|pjrt|check …` from the arguments after `worker`.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    match dispatch(arguments) {
        Ok(code) => code,
        Err(message) => {
            let _ = writeln!(std::io::stderr().lock(), "error: {message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(arguments: Vec<OsString>) -> Result<ExitCode, String> {
    let mut arguments = arguments.into_iter();
    let kind = arguments.next().unwrap_or_default();
    match kind.to_str() {
        Some("exec") => {
            let mut options = ExecOptions::default();
            while let Some(argument) = arguments.next() {
                let mut number = || -> Result<u64, String> {
                    let value = arguments.next().unwrap_or_default();
                    value.to_string_lossy().parse().map_err(|_| format!("`{}` is no number", value.display()))
                };
                match argument.to_str() {
                    Some("--memory-bytes") => options.memory_bytes = Some(number()?),
                    Some("--cpu-seconds") => options.cpu_seconds = Some(number()?),
                    Some("--grace-ms") => options.grace = Duration::from_millis(number()?),
                    Some("--inner-of") => options.inner_of = u32::try_from(number()?).ok(),
                    Some("--") => break,
                    _ => return Err(format!("`worker exec` has no `{}`", argument.display())),
                }
            }
            options.command = arguments.collect();
            let exe = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
            Ok(ExitCode::from(exec::run(&options, &exe)))
        }
        Some("pjrt") => {
            let mut options = PjrtWorkerOptions::default();
            while let Some(argument) = arguments.next() {
                let value = arguments.next().ok_or_else(|| format!("`{}` needs a value", argument.display()))?;
                match argument.to_str() {
                    Some("--plugin") => options.plugin = value.into(),
                    Some("--device") => {
                        options.device = value.to_string_lossy().parse().map_err(|_| "a device's index".to_owned())?;
                    }
                    Some("--client-option") => options.client_options.push(value.to_string_lossy().into_owned()),
                    _ => return Err(format!("`worker pjrt` has no `{}`", argument.display())),
                }
            }
            Ok(worker_main(&options))
        }
        Some("check") => {
            let command: Vec<OsString> = arguments.collect();
            let [command] = command.as_slice() else {
                return Err("`worker check` takes one command, in quotes where it has blanks".to_owned());
            };
            let exe = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
            let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
            let command = WorkerCommand::shell(exe, &command.to_string_lossy());
            let report = conformance::check(&command, &Limits::default(), folder.path())
                .map_err(|failure| failure.to_string())?;
            let written = write!(std::io::stdout().lock(), "{report}");
            written.map_err(|error| format!("stdout: {error}"))?;
            Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => Err(format!("`worker {}` is none of `exec`, `pjrt`, `check`", kind.display())),
    }
}
