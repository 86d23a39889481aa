//! Compiles programs for a device that need not be present, side by side in workers that open no device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::outcome::{CompileOutcome, UnbelievedRefusals, outcome_of};
use super::target_options::{StartedTarget, TargetOptions, start_worker};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::scratch::Scratch;
use crate::signature::{PublicKeys, Signer};
use crate::target::Target;
use crate::timer::events::Events;
use crate::timer::forecast::Forecast;
use crate::timer::job::ProgramFile;
use crate::timer::pjrt::compile::{
    CompileCommands, CompileNote, CompileTask, CompileWorker, CompiledFor, CompiledTask, Compilers, DeviceAccess,
    ExecutableKey, ExecutableStore, KeptOutcome, ListedExecutable, believed, compile_options,
};
use crate::timer::pjrt::plugin::{digest_while, package_of, toolchain};

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

/// Compiles for one target.
pub struct TargetCompiler {
    compilers: Compilers<CompileWorker>,
    store: ExecutableStore,
    /// The store's folder, as the user named it.
    folder: PathBuf,
    others: Vec<PathBuf>,
    trusted: Vec<PublicKeys>,
    unbelieved: RefCell<UnbelievedRefusals>,
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
    /// If the plugin cannot be loaded or cannot compile for absent devices, if it does not know the target, or if the
    /// store cannot be created.
    pub fn start(options: &TargetOptions, signer: Option<Arc<Signer>>) -> Result<Self, Failure> {
        let failure = |message: String| Failure::new(FailureKind::Device, message);
        let store = ExecutableStore::open(&options.store).map(|store| store.signed_by(signer)).map_err(|error| {
            failure(format!("{}: cannot be a folder for executables: {error}", options.store.display()))
        })?;
        let scratch =
            Scratch::new().map_err(|error| failure(format!("cannot make a folder for temporary files: {error}")))?;
        let (plugin_digest, StartedTarget { command, mut device, notes }) =
            digest_while(&options.plugin, Some(store.folder()), || start_worker(options))?;
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

    /// The target's fingerprint, as a present device would have it, so that executables for it are found on that
    /// device.
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
        each: &mut dyn FnMut(usize, &CompileOutcome),
    ) -> Result<Vec<Option<CompileOutcome>>, Failure> {
        let mut outcomes: Vec<Option<CompileOutcome>> = vec![None; programs.len()];
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
                    CompileOutcome::Failed { reason: "the plugin cannot serialize its executable".to_owned() }
                }
                Ok(_) => {
                    CompileOutcome::Failed { reason: "it compiles, but its executable could not be kept".to_owned() }
                }
                Err(failure) if failure.kind == FailureKind::Device => return Err(failure),
                Err(failure) if failure.kind == FailureKind::Compile => {
                    let key = programs.get(place).map(|program| self.key(&program.program));
                    self.refused_now(key.as_ref(), failure.message)
                }
                Err(failure) => CompileOutcome::Failed { reason: failure.to_string() },
            };
            each(place, &outcome);
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = Some(outcome);
            }
        }
        Ok(outcomes)
    }

    /// A refusal of this run. Its time is in the store, if it was kept.
    fn refused_now(&self, key: Option<&ExecutableKey>, reason: String) -> CompileOutcome {
        let noted = key.and_then(|key| self.store.noted(key));
        let own = noted.filter(|noted| noted.note.refused.as_ref() == Some(&reason));
        let seconds = own.map_or(0.0, |noted| noted.note.compile_ns as f64 / 1e9);
        CompileOutcome::Refused { reason, seconds, reused: false }
    }

    /// The earlier result of a program; entries of other machines' stores are copied.
    fn known(&self, key: &ExecutableKey) -> Option<(CompileNote, u64)> {
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
    fn believed_in(&self, other: Option<&Path>, key: &ExecutableKey) -> Option<(CompileNote, u64)> {
        let (folder, noted) = match other {
            Some(other) => (other, self.store.noted_in(other, key)?),
            None => (self.folder.as_path(), self.store.noted(key)?),
        };
        let KeptOutcome { note, payload_bytes, path, digest } = noted;
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
        let of_target = |listed: &&ListedExecutable| listed.key.target.as_ref() == Some(&target);
        let mut listed = self.store.listed().unwrap_or_default();
        listed.extend(self.others.iter().flat_map(|other| ExecutableStore::list(other).unwrap_or_default().listed));
        let known: Vec<(f64, u64)> = listed.iter().filter(of_target).filter_map(ListedExecutable::cost).collect();
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
