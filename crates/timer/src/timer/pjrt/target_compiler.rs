//! Compiles programs for a device that need not be present, side by side in workers that open no device.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::beside_plugin;
use super::compiler::{CompileCommands, CompileTask, CompileWorker, CompiledTask, DeviceAccess};
use super::compilers::Compilers;
use super::cuda_tools::{cuda_home_for, toolchain};
use super::flags::leave_out_fatal;
use super::llo;
use super::no_device::without_metadata;
use super::options::compile_options;
use super::package::package_of;
use super::plugin_digest::digest_of_plugin;
use super::store::{CompiledFor, ExecutableKey, ExecutableStore, Listed, Note, Noted, believed};
use crate::config::Config;
use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::scratch::Scratch;
use crate::setters;
use crate::signature::{PublicKeys, Signer};
use crate::target::Target;
use crate::timer::client::{Limits, WorkerClient, WorkerCommand};
use crate::timer::events::Events;
use crate::timer::forecast::Forecast;
use crate::timer::job::ProgramFile;
use crate::timer::protocol::{CostAnalysis, KernelUse, MemoryStats};

/// How to start a [`TargetCompiler`].
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
    pub limits: Limits,
    /// Compiler options for every program, by name.
    pub overrides: BTreeMap<String, String>,
    /// Makes libtpu dump its schedules, and reads bundles and vector memory from them.
    pub llo: bool,
}

setters!(TargetOptions {
    others: Vec<PathBuf>,
    trusted: Vec<PublicKeys>,
    compile_jobs: Option<usize>,
    limits: Limits,
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
            limits: Limits::default(),
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
        let mut environment = beside_plugin::environment(&self.plugin);
        environment.extend(cuda_home_for(&self.plugin));
        if self.target.platform == "tpu" {
            // libtpu admits one process per machine, unless this says that they use no TPU
            environment.push(("ALLOW_MULTIPLE_LIBTPU_LOAD".into(), Some("1".into())));
            environment.extend(without_metadata());
        }
        WorkerCommand { exe: self.exe.clone(), command, environment }
    }

    /// The same command, with libtpu's dump in a folder of the worker's own.
    fn command_with_dump(command: &WorkerCommand, folder: &Path) -> WorkerCommand {
        let mut command = command.clone();
        command.command.extend(["--llo-dump".into(), folder.into()]);
        let flags = std::env::var("LIBTPU_INIT_ARGS").unwrap_or_default();
        let flags = format!("{flags} {}", llo::dump_flags(folder));
        command.environment.push(("LIBTPU_INIT_ARGS".into(), Some(flags.trim().into())));
        command
    }
}

/// One program to compile.
#[derive(Debug, Clone)]
pub struct TargetProgram {
    /// `op@vN:key`, or the module, for progress messages.
    pub operation: String,
    /// The config.
    pub config: Config,
    /// The program.
    pub program: ProgramFile,
}

/// The result of compiling a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Outcome {
    /// It compiles.
    Compiled {
        /// Time of the compilation, seconds.
        seconds: f64,
        /// Bytes of the serialized executable.
        executable_bytes: u64,
        /// Device memory of a run, if the compiler reports it.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryStats>,
        /// Its kernels' use of GPU resources; empty if unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kernels: Vec<KernelUse>,
        /// Why they are unknown, for a GPU's program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernels_unknown: Option<String>,
        /// The compiler's cost analysis of a run, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<CostAnalysis>,
        /// Whether the result was known from an earlier run.
        reused: bool,
    },
    /// The compiler refused it.
    Refused {
        /// The compiler's message.
        reason: String,
        /// Time of the attempt, seconds.
        seconds: f64,
        /// Whether the result was known from an earlier run.
        reused: bool,
    },
    /// Undecided, because a worker died or took too long. The next run tries again.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Compiles for one target.
pub struct TargetCompiler {
    compilers: Compilers<CompileWorker>,
    store: ExecutableStore,
    /// The store's folder, as the user named it.
    folder: PathBuf,
    others: Vec<PathBuf>,
    trusted: Vec<PublicKeys>,
    unbelieved: RefCell<Unbelieved>,
    target: Target,
    plugin: PathBuf,
    plugin_digest: Digest,
    toolchain: Option<String>,
    overrides: BTreeMap<String, String>,
    device: DeviceFingerprint,
    notes: Vec<String>,
    scratch: Scratch,
}

impl TargetCompiler {
    /// Asks the plugin for the target's description. Kept executables are signed, so that others may load them.
    ///
    /// # Errors
    /// If the plugin cannot be loaded or cannot compile for absent devices, if it does not know the target, or if the store
    /// cannot be created.
    pub fn start(options: &TargetOptions, signer: Option<Arc<Signer>>) -> Result<Self, Failure> {
        let failure = |message: String| Failure::new(FailureKind::Device, message);
        let store = ExecutableStore::open(&options.store).map(|store| store.signed_by(signer)).map_err(|error| {
            failure(format!("{}: cannot be a folder for executables: {error}", options.store.display()))
        })?;
        let scratch =
            Scratch::new().map_err(|error| failure(format!("cannot make a folder for temporary files: {error}")))?;
        let (plugin_digest, Started { command, mut device, notes }) = std::thread::scope(|scope| {
            let digest = scope.spawn(|| digest_of_plugin(&options.plugin, Some(store.folder())));
            let started = start_worker(options);
            let digest = digest.join().unwrap_or_else(|_| digest_of_plugin(&options.plugin, Some(store.folder())));
            // an unreadable file is the better reason
            Ok::<_, Failure>((digest?, started?))
        })?;
        let is_cuda = options.target.platform == "cuda";
        let toolchain =
            is_cuda.then(|| toolchain(&options.plugin, &device.environment.xla_flags, store.folder())).flatten();
        device.environment.plugin_digest = Some(plugin_digest);
        let jobs = options.compile_jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let compilers = {
            let (limits, store) = (options.limits.clone(), store.clone());
            let dumps = (options.llo && options.target.platform == "tpu").then(|| scratch.path().to_owned());
            let started = AtomicUsize::new(0);
            Compilers::new(jobs, move |task| {
                let folder = |dumps: &PathBuf| dumps.join(format!("llo-{}", started.fetch_add(1, Ordering::Relaxed)));
                let usual = match dumps.as_ref().map(folder) {
                    Some(folder) => TargetOptions::command_with_dump(&command, &folder),
                    None => command.clone(),
                };
                CompileWorker::start(&CompileCommands { usual, without_device: None }, &limits, &store, task)
            })
        };
        let (target, overrides, others) = (options.target.clone(), options.overrides.clone(), options.others.clone());
        let trusted = options.trusted.clone();
        let plugin = options.plugin.clone();
        Ok(Self {
            compilers,
            store,
            folder: options.store.clone(),
            others,
            trusted,
            unbelieved: RefCell::default(),
            target,
            plugin,
            plugin_digest,
            toolchain,
            overrides,
            device,
            notes,
            scratch,
        })
    }

    /// The target's fingerprint, as a present device would have it, so that executables for it are found on that device.
    pub fn device(&self) -> &DeviceFingerprint {
        &self.device
    }

    /// Notes on the compiler for the user, one line each.
    pub fn notes(&self) -> Vec<String> {
        let unbelieved = self.unbelieved.borrow().note("is compiled again", "are compiled again");
        self.notes.iter().cloned().chain(unbelieved).collect()
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The Python package of the plugin, with its version, if there is one.
    pub fn package(&self) -> Option<String> {
        package_of(&self.plugin)
    }

    /// A folder for files that are needed as long as this value lives.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Compiles programs, or finds earlier outcomes, and reports each by its index as soon as it is known.
    ///
    /// # Errors
    /// If no worker can be started, or `is_cancelled`.
    pub fn compile(
        &mut self,
        programs: &[TargetProgram],
        is_cancelled: &dyn Fn() -> bool,
        each: &mut dyn FnMut(usize, &Outcome),
    ) -> Result<Vec<Option<Outcome>>, Failure> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; programs.len()];
        let mut wanted = Vec::new();
        for ((place, program), outcome) in programs.iter().enumerate().zip(&mut outcomes) {
            let key = self.key(&program.program);
            match self.known(&key) {
                Some((note, bytes)) => {
                    let known = outcome_of(note, bytes, true);
                    each(place, &known);
                    *outcome = Some(known);
                }
                None => wanted.push((place, self.task(place, program, key))),
            }
        }
        let places: Vec<usize> = wanted.iter().map(|(place, _)| *place).collect();
        self.compilers.submit(wanted)?;
        for place in places {
            if is_cancelled() {
                self.compilers.clear();
                break;
            }
            let Some(done) = self.compilers.take(place) else { continue };
            // what the store has in its place may be of an earlier run, and of somebody else
            let outcome = match done {
                Ok(CompiledTask { noted: Some((note, bytes)), .. }) => outcome_of(note, bytes, false),
                Ok(CompiledTask { kept: None, .. }) => {
                    Outcome::Failed { reason: "the plugin cannot serialize its executable".to_owned() }
                }
                Ok(_) => Outcome::Failed { reason: "it compiles, but its executable could not be kept".to_owned() },
                Err(failure) if failure.kind == FailureKind::Device => return Err(failure),
                Err(failure) if failure.kind == FailureKind::Compile => {
                    let key = programs.get(place).map(|program| self.key(&program.program));
                    self.refused_now(key.as_ref(), failure.message)
                }
                Err(failure) => Outcome::Failed { reason: failure.to_string() },
            };
            each(place, &outcome);
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = Some(outcome);
            }
        }
        Ok(outcomes)
    }

    /// A refusal of this run. Its time is in the store, if it was kept.
    fn refused_now(&self, key: Option<&ExecutableKey>, reason: String) -> Outcome {
        let noted = key.and_then(|key| self.store.noted(key));
        let own = noted.filter(|noted| noted.note.refused.as_ref() == Some(&reason));
        let seconds = own.map_or(0.0, |noted| noted.note.compile_ns as f64 / 1e9);
        Outcome::Refused { reason, seconds, reused: false }
    }

    /// The earlier result of a program; entries of other machines' stores are copied.
    fn known(&self, key: &ExecutableKey) -> Option<(Note, u64)> {
        self.believed_in(None, key).or_else(|| {
            let other = self.others.iter().find(|other| self.believed_in(Some(other), key).is_some())?;
            self.store
                .take_over(other, key)
                .inspect_err(|error| tracing::warn!("{}: not copied: {error}", other.display()))
                .ok()?;
            self.believed_in(None, key)
        })
    }

    /// What this store, or another one, has on a program, if it is believed: a refusal only from who is trusted.
    fn believed_in(&self, other: Option<&Path>, key: &ExecutableKey) -> Option<(Note, u64)> {
        let (folder, noted) = match other {
            Some(other) => (other, self.store.noted_in(other, key)?),
            None => (self.folder.as_path(), self.store.noted(key)?),
        };
        let Noted { note, payload_bytes, path, digest } = noted;
        if note.refused.is_some()
            && let Err(why) = believed(&path, digest, &self.trusted)
        {
            self.unbelieved.borrow_mut().add(folder, path, why);
            return None;
        }
        Some((note, payload_bytes))
    }

    /// The estimated cost of compiling programs.
    pub fn forecast<'a>(&self, programs: impl IntoIterator<Item = &'a TargetProgram>) -> Forecast {
        let is_kept = |key: &ExecutableKey| {
            let in_other = |other: &PathBuf| self.believed_in(Some(other), key).is_some();
            self.believed_in(None, key).is_some() || self.others.iter().any(in_other)
        };
        let (kept, to_compile): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|program| is_kept(&self.key(&program.program)));
        let target = self.target.description();
        let of_target = |listed: &&Listed| listed.key.target.as_ref() == Some(&target);
        let mut listed = self.store.listed().unwrap_or_default();
        listed.extend(self.others.iter().flat_map(|other| ExecutableStore::list(other).unwrap_or_default().listed));
        let known: Vec<(f64, u64)> = listed.iter().filter(of_target).filter_map(Listed::cost).collect();
        Forecast::by(&known, to_compile.len(), kept.len(), self.compilers.jobs())
    }

    fn key(&self, program: &ProgramFile) -> ExecutableKey {
        ExecutableKey {
            program: program.program.digest,
            format: program.program.format.pjrt_format().to_owned(),
            compile_options: compile_options(None, &Default::default()),
            plugin: self.plugin_digest,
            device: self.device.identity.to_string(),
            device_index: 0,
            // code for another device does not depend on this machine's processor
            cpu_features: String::new(),
            xla_flags: self.device.environment.xla_flags.clone(),
            target: Some(self.target.description()),
            toolchain: self.toolchain.clone(),
            overrides: self.overrides.clone(),
            base_options: program.compile_options.as_ref().map(|options| options.digest),
            copy: 0,
        }
    }

    fn task(&self, place: usize, program: &TargetProgram, key: ExecutableKey) -> CompileTask {
        let TargetProgram { operation, config, program } = program.clone();
        let of = CompiledFor { target: self.target.name.clone(), operation: operation.clone(), config: config.clone() };
        CompileTask {
            candidate: place,
            operation,
            config,
            program: (&program).into(),
            key,
            process: None,
            access: DeviceAccess::Shared,
            of: Some(of),
            scratch: self.scratch.path().to_owned(),
            events: Events::default(),
        }
    }
}

/// Refusals that are not believed.
#[derive(Debug, Default)]
struct Unbelieved {
    stores: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    reasons: BTreeSet<String>,
}

impl Unbelieved {
    fn add(&mut self, store: &Path, file: PathBuf, why: String) {
        self.stores.insert(format!("`{}`", store.display()));
        self.files.insert(file);
        self.reasons.insert(why);
    }

    /// How many, and why; `then` says what follows for the program of one, and for those of several.
    fn note(&self, then: &str, then_all: &str) -> Option<String> {
        let (count, then) = match self.files.len() {
            0 => return None,
            1 => ("is not believed", format!("its program {then}")),
            _ => ("are not believed", format!("their programs {then_all}")),
        };
        let join = |texts: &BTreeSet<String>| texts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let (refusals, stores) = (counted(self.files.len(), "refusal"), join(&self.stores));
        Some(format!(
            "{refusals} of {stores} {count} ({}), and {then}: name the key of whoever compiled there with `--verify-key`",
            join(&self.reasons)
        ))
    }
}

/// The result of every program that a store has for targets, by the target's program. If several programs and compilers apply,
/// those used last count. Refusals count only from who is trusted; a line says how many do not.
///
/// # Errors
/// If there is no store.
pub fn kept_outcomes(
    store: &Path,
    trusted: &[PublicKeys],
) -> io::Result<(BTreeMap<CompiledFor, Outcome>, Option<String>)> {
    let mut listed = ExecutableStore::list(store)?.listed;
    listed.sort_by_key(|listed| listed.used);
    let mut unbelieved = Unbelieved::default();
    let mut outcomes = BTreeMap::new();
    for Listed { path, digest, note, payload_bytes, .. } in listed {
        let Some(mut note) = note else { continue };
        let Some(of) = note.of.take() else { continue };
        if note.refused.is_some()
            && let Err(why) = believed(&path, digest, trusted)
        {
            unbelieved.add(store, path, why);
            continue;
        }
        outcomes.insert(of, outcome_of(note, payload_bytes, true));
    }
    Ok((outcomes, unbelieved.note("counts as unknown", "count as unknown")))
}

fn outcome_of(note: Note, executable_bytes: u64, reused: bool) -> Outcome {
    let Note { compile_ns, memory, kernels, kernels_unknown, cost, refused, .. } = note;
    let seconds = compile_ns as f64 / 1e9;
    match refused {
        Some(reason) => Outcome::Refused { reason, seconds, reused },
        None => Outcome::Compiled { seconds, executable_bytes, memory, kernels, kernels_unknown, cost, reused },
    }
}

/// What the first worker of a target shows.
struct Started {
    /// The command that works: without flags that the plugin died of.
    command: WorkerCommand,
    device: DeviceFingerprint,
    notes: Vec<String>,
}

/// Starts a target's first worker, and ends it when its device is known.
fn start_worker(options: &TargetOptions) -> Result<Started, Failure> {
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
    Ok(Started { command, device, notes })
}
