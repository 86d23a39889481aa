//! A worker process that compiles programs, and how its executables are kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;

use super::pool::{Compiler, Stop};
use super::process_flags::ProcessFlags;
use super::store::{CompileNote, CompiledFor, ExecutableKey, ExecutableStore, MAX_EXECUTABLE_BYTES, StoredExecutable};
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::timer::answers::AnswerFolder;
use crate::timer::client::WorkerClient;
use crate::timer::clock::nanoseconds;
use crate::timer::compile_times::CompileTimes;
use crate::timer::events::{Events, Slice};
use crate::timer::protocol::{CompileAnswer, CompileParams, ExecutableRef, Method, ProgramRef};
use crate::timer::worker_command::{WorkerCommand, WorkerLimits};

/// One program to compile.
#[derive(Debug, Clone)]
pub(crate) struct CompileTask {
    pub(crate) candidate: usize,
    /// `op@vN:key` and the config, for progress messages.
    pub(crate) operation: String,
    pub(crate) config: Config,
    pub(crate) program: ProgramRef,
    pub(crate) key: ExecutableKey,
    /// How the compiling process is started, if not as usual.
    pub(crate) process: Option<ProcessFlags>,
    pub(crate) access: DeviceAccess,
    /// The target's program, for readers of the store.
    pub(crate) of: Option<CompiledFor>,
    /// The job's scratch folder, in which the worker writes the executable before it is kept.
    pub(crate) scratch: PathBuf,
    /// Receives events about its compilation.
    pub(crate) events: Events,
}

impl CompileTask {
    /// The track of the current thread, one of those that compile.
    fn own_track(&self) -> Events {
        self.events.on_track(std::thread::current().name().unwrap_or("compile"))
    }
}

/// What a compilation needs of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceAccess {
    /// Its description alone: the worker opens no device.
    None,
    /// The device, beside other compilations.
    Shared,
    /// The device for itself, because XLA measures on it.
    Alone,
}

/// How compile workers are started.
#[derive(Debug)]
pub(crate) struct CompileCommands {
    pub(crate) usual: WorkerCommand,
    /// For [`DeviceAccess::None`].
    pub(crate) without_device: Option<WorkerCommand>,
}

/// The result.
#[derive(Debug)]
pub(crate) struct CompiledTask {
    /// `None` if the plugin cannot serialize.
    pub(crate) kept: Option<StoredExecutable>,
    /// What the store now has on it, and the bytes of its executable; `None` if nothing was kept there.
    pub(crate) noted: Option<(CompileNote, u64)>,
    pub(crate) compile_ns: u64,
    pub(crate) cpu_ns: u64,
}

/// An expendable worker that measures nothing.
pub(crate) struct CompileWorker {
    client: WorkerClient,
    limits: WorkerLimits,
    store: ExecutableStore,
    process: Option<ProcessFlags>,
    opens_device: bool,
}

impl CompileWorker {
    /// Starts one for this task, and for others that need the same flags.
    pub(crate) fn start(
        commands: &CompileCommands,
        limits: &WorkerLimits,
        store: &ExecutableStore,
        task: &CompileTask,
    ) -> Result<Self, Failure> {
        let process = task.process.clone();
        let without_device = commands.without_device.as_ref().filter(|_| task.access == DeviceAccess::None);
        let opens_device = without_device.is_none();
        let command = without_device.unwrap_or(&commands.usual);
        let client = match &process {
            Some(flags) => WorkerClient::spawn(&flags.added_to(command), limits)?,
            None => WorkerClient::spawn(command, limits)?,
        };
        Ok(Self { client, limits: limits.clone(), store: store.clone(), process, opens_device })
    }

    /// Explains a failure if the worker died of flags that not every worker has.
    fn explained(&self, failure: Failure) -> Failure {
        match &self.process {
            Some(flags) if self.client.is_gone() => flags.explained(failure, &self.client.stderr()),
            _ => failure,
        }
    }
}

impl Compiler for CompileWorker {
    type Task = CompileTask;
    type Output = CompiledTask;

    fn greet(&mut self, task: &CompileTask) -> Result<(), Failure> {
        let events = task.own_track();
        let _starting = events.open(Slice::Detail("start a compile worker"));
        self.client.hello(&self.limits).map(drop).map_err(|failure| self.explained(failure))
    }

    fn suits(&self, task: &CompileTask) -> bool {
        self.process == task.process && self.opens_device == (task.access != DeviceAccess::None)
    }

    fn as_own(task: &CompileTask, failure: &Failure) -> Option<Failure> {
        match (&task.process, task.access) {
            (Some(_), _) => Some(Failure::new(FailureKind::Compile, failure.message.clone())),
            // a worker with a device may start all the same
            (None, DeviceAccess::None) => Some(failure.clone()),
            (None, _) => None,
        }
    }

    fn is_alone(task: &CompileTask) -> bool {
        task.access == DeviceAccess::Alone
    }

    fn holds_device(&self) -> bool {
        self.opens_device
    }

    fn compile(&mut self, task: &CompileTask) -> Result<CompiledTask, Failure> {
        let events = task.own_track();
        let CompileTask { candidate, operation, config, program, key, of, scratch, .. } = task.clone();
        let overrides = key.overrides.clone();
        let folder = AnswerFolder::make(&scratch).map_err(|error| {
            let message = format!("cannot make a folder in `{}`: {error}", scratch.display());
            Failure::new(FailureKind::Device, message)
        })?;
        let path = folder.path().join("executable");
        let has_own_options = program.compile_options.is_some();
        let _compiling = events.open(Slice::Compile { candidate, operation: &operation, config: &config });
        let call = Method::Compile(CompileParams { candidate, program, executable: path.clone(), overrides });
        let begin = Instant::now();
        let times = self.limits.compile_times.as_ref();
        let learned = times.and_then(CompileTimes::limit);
        let compiled: Result<CompileAnswer, Failure> =
            self.client.request(call, learned.unwrap_or(self.limits.compile));
        let compiled = compiled.map_err(|failure| match (failure.kind.clone(), learned) {
            (FailureKind::Timeout, None) => {
                failure.because("the time limit of a compilation; `--timeout` gives it more")
            }
            (FailureKind::Timeout, Some(_)) => failure.because(
                "the time limit of a compilation, twice as long as nine in ten took here; `--timeout` gives it more",
            ),
            _ => self.explained(failure),
        });
        if let (Ok(_), Some(times)) = (&compiled, times) {
            times.add(begin.elapsed());
        }
        let compiled = compiled.map_err(|failure| match key.target {
            Some(_) => of_options(failure, &key.overrides, has_own_options),
            None => failure,
        });
        let compiled = compiled.inspect_err(|failure| {
            // with a device it is decided again what compiles; without one, the compiler's refusal is final
            if failure.kind == FailureKind::Compile && key.target.is_some() {
                let (compile_ns, refused) = (nanoseconds(begin.elapsed()), Some(failure.message.clone()));
                let note = CompileNote { compile_ns, refused, of: of.clone(), ..CompileNote::default() };
                if let Err(error) = self.store.refuse(&key, note) {
                    self.store.say_not_kept(&key, &format!("the refusal of candidate {candidate}"), &error);
                }
            }
        })?;
        let CompileAnswer { compile_ns, cpu_ns, serialized, signature, memory, kernels, kernels_unknown, cost } =
            compiled;
        if !serialized {
            return Ok(CompiledTask { kept: None, noted: None, compile_ns, cpu_ns });
        }
        let note = CompileNote { compile_ns, cpu_ns, memory, kernels, kernels_unknown, cost, refused: None, of };
        let payload = folder.open(&path, MAX_EXECUTABLE_BYTES).map_err(|error| {
            Failure::new(FailureKind::Protocol, format!("the compile worker's `{}`: {error}", path.display()))
        })?;
        let bytes = payload.metadata().map_or(0, |metadata| metadata.len());
        let (kept, noted) = match self.store.keep(&key, payload, signature.clone(), note.clone()) {
            Ok(kept) => (kept, Some((note, bytes))),
            Err(error) => {
                // a full or missing folder costs the next run a compilation, and this run nothing
                self.store.say_not_kept(&key, &format!("the executable of candidate {candidate}"), &error);
                folder.leave();
                (StoredExecutable { executable: ExecutableRef { path, offset: 0, digest: None }, signature }, None)
            }
        };
        Ok(CompiledTask { kept: Some(kept), noted, compile_ns, cpu_ns })
    }

    fn is_gone(&self) -> bool {
        self.client.is_gone()
    }

    fn was_killed(&self) -> bool {
        self.client.was_killed()
    }

    fn stop(&self) -> Option<Stop> {
        let handle = self.client.process_handle().ok()?;
        Some(Box::new(move || {
            // the supervisor's death ends the worker through the parent-death signal
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
        }))
    }
}

/// Programs for a target all have the same options, so an option that the compiler rejects says nothing about one of
/// them. In a search for options it does.
fn of_options(failure: Failure, overrides: &BTreeMap<String, String>, has_own_options: bool) -> Failure {
    let is_of_options =
        ["No such compile option", "While setting option"].iter().any(|words| failure.message.contains(words));
    let whose = match (overrides.is_empty(), has_own_options) {
        (true, true) => "of the side file",
        (false, true) => "of the side file, or those of `--base-options`",
        (false, false) => "of `--base-options`",
        (true, false) => return failure,
    };
    if !is_of_options || failure.kind != FailureKind::Compile {
        return failure;
    }
    let message = format!("the compiler does not accept the options {whose}: {}", failure.message);
    Failure::new(FailureKind::Device, message)
}

/// A compile worker's death is the program's failure. The measuring worker is unaffected and continues.
pub(crate) fn as_compile_failure(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Crash | FailureKind::Timeout | FailureKind::Memory | FailureKind::Protocol => {
            Failure::new(FailureKind::Compile, format!("{}: {}", failure.kind, failure.message))
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_all_programs_have_is_no_refusal_of_one() {
        let none = BTreeMap::new();
        let one = BTreeMap::from([("xla_gone".to_owned(), "true".to_owned())]);
        let refusal = |message: &str| Failure::new(FailureKind::Compile, message);
        let unknown = refusal("No such compile option: 'xla_gone'");
        for (overrides, has_own, whose) in [
            (&one, false, "of `--base-options`"),
            (&none, true, "of the side file"),
            (&one, true, "of the side file, or those of `--base-options`"),
        ] {
            let failure = of_options(unknown.clone(), overrides, has_own);
            let expected = format!("the compiler does not accept the options {whose}: {}", unknown.message);
            assert_eq!((failure.kind, failure.message), (FailureKind::Device, expected));
        }
        let other = refusal("Shared memory size limit exceeded");
        assert_eq!(of_options(other.clone(), &one, true), other);
        assert_eq!(of_options(unknown.clone(), &none, false), unknown);
    }
}
