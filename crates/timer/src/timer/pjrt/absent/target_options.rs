//! How a target's compiler is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::setters;
use crate::signature::PublicKeys;
use crate::target::Target;
use crate::timer::client::WorkerClient;
use crate::timer::pjrt::compile::figures::llo;
use crate::timer::pjrt::plugin::{beside, cuda_home_for, leave_out_fatal, without_metadata};
use crate::timer::worker_command::{WorkerCommand, WorkerLimits};

/// How to start a [`TargetCompiler`](super::TargetCompiler).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetOptions {
    /// This program's executable, from which workers are started.
    pub exe: PathBuf,
    /// The vendor's plugin.
    pub plugin: PathBuf,
    /// What to compile for.
    pub target: Target,
    /// Folder of the kept executables and refusals.
    pub store: PathBuf,
    /// Stores of other machines; their entries are copied.
    pub others: Vec<PathBuf>,
    /// Keys whose owners are believed what the compiler refused.
    pub trusted: Vec<PublicKeys>,
    /// Maximum number of concurrent compilations; one for each core by default.
    pub compile_jobs: Option<usize>,
    /// Limits of each worker.
    pub limits: WorkerLimits,
    /// Compiler options for every program, by name.
    pub overrides: BTreeMap<String, String>,
    /// Makes libtpu dump its schedules, and reads bundles and vector memory from them.
    pub llo: bool,
}

setters!(TargetOptions {
    others: Vec<PathBuf>,
    trusted: Vec<PublicKeys>,
    compile_jobs: Option<usize>,
    limits: WorkerLimits,
    overrides: BTreeMap<String, String>,
    llo: bool
});

impl TargetOptions {
    /// One worker for each core, with the usual limits.
    pub fn new(exe: impl Into<PathBuf>, plugin: impl Into<PathBuf>, target: Target, store: impl Into<PathBuf>) -> Self {
        Self {
            exe: exe.into(),
            plugin: plugin.into(),
            target,
            store: store.into(),
            others: Vec::new(),
            trusted: Vec::new(),
            compile_jobs: None,
            limits: WorkerLimits::default(),
            overrides: BTreeMap::new(),
            llo: false,
        }
    }

    fn command(&self) -> WorkerCommand {
        let mut command = vec![self.exe.clone().into(), "worker".into(), "pjrt".into()];
        command.extend(["--plugin".into(), self.plugin.clone().into()]);
        command.extend(["--topology".into(), self.target.topology.clone().into()]);
        for option in &self.target.options {
            command.extend(["--topology-option".into(), option.into()]);
        }
        let mut environment = beside::environment(&self.plugin);
        environment.extend(cuda_home_for(&self.plugin));
        if self.target.platform == "tpu" {
            // libtpu admits one process per machine, unless this says that they use no TPU
            environment.push(("ALLOW_MULTIPLE_LIBTPU_LOAD".into(), Some("1".into())));
            environment.extend(without_metadata());
        }
        WorkerCommand { exe: self.exe.clone(), command, environment, ..WorkerCommand::default() }
    }

    /// The same command, with libtpu's dump in a folder of the worker's own.
    pub(super) fn command_with_dump(command: &WorkerCommand, folder: &Path) -> WorkerCommand {
        let mut command = command.clone();
        command.command.extend(["--llo-dump".into(), folder.into()]);
        let flags = std::env::var("LIBTPU_INIT_ARGS").unwrap_or_default();
        let flags = format!("{flags} {}", llo::dump_flags(folder));
        command.environment.push(("LIBTPU_INIT_ARGS".into(), Some(flags.trim().into())));
        command
    }
}

/// What the first worker of a target shows.
pub(super) struct StartedTarget {
    /// The command that works: without flags that the plugin died of.
    pub(super) command: WorkerCommand,
    pub(super) device: DeviceFingerprint,
    pub(super) notes: Vec<String>,
}

/// Starts a target's first worker, and ends it when its device is known.
pub(super) fn start_worker(options: &TargetOptions) -> Result<StartedTarget, Failure> {
    let plugin = options.plugin.file_name().unwrap_or_default().to_string_lossy();
    let device_failure =
        |why: &str| Failure::new(FailureKind::Device, format!("target `{}` of {plugin}: {why}", options.target));
    let mut command = options.command();
    let mut notes = Vec::new();
    let hello = loop {
        let mut client = WorkerClient::spawn(&command, &options.limits)?;
        let failure = match client.hello(&options.limits) {
            Ok(hello) => {
                client.shutdown(&options.limits);
                break hello;
            }
            Err(failure) => failure,
        };
        let Some(note) = leave_out_fatal(&mut command, &client.stderr()) else {
            // the message of another platform's plugin seldom gives the reason
            let is_its_own = plugin.contains(&*options.target.platform);
            let hint = format!("; is it a plugin for `{}`? Name one with `--plugin`", options.target.platform);
            return Err(device_failure(&format!("{}{}", failure.message, if is_its_own { "" } else { &hint })));
        };
        notes.push(note);
    };
    let device = hello.devices.into_iter().next().ok_or_else(|| device_failure("it has no device"))?;
    let identity = &device.identity;
    if identity.platform != options.target.platform {
        return Err(device_failure(&format!("the plugin compiles for `{}`", identity.platform)));
    }
    // a plugin that was given none reports words or `0.0`, and then refuses every program or crashes
    let is_known = |capability: &String| capability.parse::<f64>().is_ok_and(|capability| capability > 0.0);
    if identity.hardware.get("compute_capability").is_some_and(|capability| !is_known(capability)) {
        return Err(device_failure("it names no compute capability: give a whole GpuTargetConfigProto"));
    }
    Ok(StartedTarget { command, device, notes })
}
