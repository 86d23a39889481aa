//! How a plugin's worker is started, and what a plugin offers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::compile::CompiledOptions;
use super::plugin::{beside, cuda_home_for, digest_while, explained, leave_out_fatal, without_metadata};
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::measured_by::{Clocks, Metric};
use crate::setters;
use crate::timer::client::WorkerClient;
use crate::timer::clock::HOST_CLOCK;
use crate::timer::protocol::Hello;
use crate::timer::worker_command::{WorkerCommand, WorkerLimits};

/// How to start a [`PjrtTimer`](super::PjrtTimer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PjrtOptions {
    /// This program's executable, from which workers are started.
    pub exe: PathBuf,
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Index of the device to measure on.
    pub device: usize,
    /// `name=value` for the plugin's client; suitable defaults for its platform if empty.
    pub client_options: Vec<String>,
    /// `XLA_FLAGS` of the workers; by default those of this process.
    pub xla_flags: Option<String>,
    /// Compiler options of programs that bring options of their own, which these replace.
    pub launch_options: BTreeMap<String, String>,
    /// What counts as an execution's duration: [`Metric::Elapsed`] is the host clock, the others need the plugin's
    /// profiler. The default is the device time of a profile if available.
    pub metric: Option<Metric>,
    /// Folder that contains the folder of kept executables.
    pub executables: PathBuf,
    /// Executables that were compiled for this device without it.
    pub compiled: Option<CompiledOptions>,
    /// Maximum number of concurrent compilations. Default: one for each core, at most 8 on a CPU and 16 elsewhere. If
    /// XLA's own autotuning measures on the device during a compilation, by default only one such compilation runs at a
    /// time.
    pub compile_jobs: Option<usize>,
    /// Limits of each worker.
    pub limits: WorkerLimits,
}

setters!(PjrtOptions {
    device: usize,
    client_options: Vec<String>,
    xla_flags: Option<String>,
    launch_options: BTreeMap<String, String>,
    metric: Option<Metric>,
    compiled: Option<CompiledOptions>,
    compile_jobs: Option<usize>,
    limits: WorkerLimits,
});

impl PjrtOptions {
    /// The first device of a plugin. `exe` is this program, `executables` the folder for executables.
    pub fn new(exe: impl Into<PathBuf>, plugin: impl Into<PathBuf>, executables: impl Into<PathBuf>) -> Self {
        Self {
            exe: exe.into(),
            plugin: plugin.into(),
            device: 0,
            client_options: Vec::new(),
            xla_flags: None,
            launch_options: BTreeMap::new(),
            metric: None,
            executables: executables.into(),
            compiled: None,
            compile_jobs: None,
            limits: WorkerLimits::default(),
        }
    }

    fn command(&self) -> WorkerCommand {
        let mut command = vec![self.exe.clone().into(), "worker".into(), "pjrt".into()];
        command.extend(["--plugin".into(), self.plugin.clone().into()]);
        command.extend(["--device".into(), self.device.to_string().into()]);
        for option in &self.client_options {
            command.extend(["--client-option".into(), option.into()]);
        }
        if self.metric == Some(Metric::Elapsed) {
            command.push(NO_PROFILER.into());
        }
        let mut environment = vec![("XLA_FLAGS".into(), Some(self.flags().into()))];
        environment.extend(cuda_home_for(&self.plugin));
        let is_libtpu = self.plugin.file_name().is_some_and(|name| name.to_string_lossy().contains("libtpu"));
        if is_libtpu {
            environment.extend(without_metadata());
        }
        environment.extend(beside::environment(&self.plugin));
        WorkerCommand { exe: self.exe.clone(), command, environment, ..WorkerCommand::default() }
    }

    fn flags(&self) -> String {
        self.xla_flags.clone().unwrap_or_else(|| std::env::var("XLA_FLAGS").unwrap_or_default())
    }
}

/// Tells a worker not to use the plugin's profiler.
const NO_PROFILER: &str = "--no-profiler";

/// The same command for a worker that does not measure, because two workers must not hold the device's profiler.
pub(super) fn without_profiler(command: &WorkerCommand) -> WorkerCommand {
    let mut command = command.clone();
    if !command.command.iter().any(|word| word == NO_PROFILER) {
        command.command.push(NO_PROFILER.into());
    }
    command
}

/// The same command for a worker that compiles for these devices without opening them.
pub(super) fn without_device(command: &WorkerCommand, topology: &str) -> WorkerCommand {
    let mut command = command.clone();
    command.command.extend(["--topology-description".into(), topology.into()]);
    command
}

/// What a plugin offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbedPlugin {
    /// Every device.
    pub devices: Vec<DeviceFingerprint>,
    /// Clock limits of the chosen GPU, if its driver reports them.
    pub clocks: Option<Clocks>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

/// Every device of a plugin, as a worker with the given options sees them.
///
/// # Errors
///
/// If the plugin cannot be loaded or shows no device.
pub fn probe(options: &PjrtOptions) -> Result<ProbedPlugin, Failure> {
    // listing devices does not need a profiler
    let options = &PjrtOptions { metric: Some(Metric::Elapsed), ..options.clone() };
    let (plugin_digest, (_, client, hello)) = digest_while(&options.plugin, None, || start_worker(options))?;
    client.shutdown(&options.limits);
    let Hello { mut devices, clocks, notes, .. } = hello;
    for device in &mut devices {
        device.environment.plugin_digest = Some(plugin_digest);
    }
    Ok(ProbedPlugin { devices, clocks, notes })
}

/// A worker after its greeting, and the command that works: without flags that crash the plugin, and without its
/// profiler if the trial of it breaks the worker.
pub(super) fn start_worker(options: &PjrtOptions) -> Result<(WorkerCommand, WorkerClient, Hello), Failure> {
    let limits = &options.limits;
    let mut command = options.command();
    let mut notes = Vec::new();
    let mut forgiven = None;
    loop {
        let mut client = WorkerClient::spawn(&command, limits)?;
        match client.hello(limits) {
            Ok(mut hello) => {
                hello.notes.extend(notes);
                return Ok((command, client, hello));
            }
            Err(failure) => {
                if let Some(note) = leave_out_fatal(&mut command, &client.stderr()) {
                    notes.push(note);
                    continue;
                }
                // one retry before the profiler is blamed, because anybody may have sent the signal
                if client.was_killed() && forgiven.as_ref() != Some(&command) {
                    forgiven = Some(command.clone());
                    continue;
                }
                let quiet = without_profiler(&command);
                if !client.is_gone() || quiet == command {
                    return Err(explained(failure, &options.plugin, &client.stderr()));
                }
                let why = format!("{HOST_CLOCK}: the plugin's profiler broke the worker: {}", failure.message);
                notes.push(why);
                command = quiet;
            }
        }
    }
}
