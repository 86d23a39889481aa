//! Where executables come from: the folder of kept ones, the stores of machines without the device, or the compile
//! workers.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::compile::{
    CompileCommands, CompileTask, CompileWorker, CompiledBefore, CompiledStore, CompiledTask, Compilers, DeviceAccess,
    ExecutableKey, ExecutableStore, ListedExecutable, Partitions, ProcessFlags, StoredExecutable, as_compile_failure,
    partitioned_options, read_code,
};
use super::device::cpu_features;
use super::start::PjrtOptions;
use crate::device::{DeviceFingerprint, xla_measures};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::hlo::is_measured_by_xla;
use crate::registry::Program;
use crate::timer::compiler_figures::CompilerFigures;
use crate::timer::forecast::Forecast;
use crate::timer::job::{Build, ProgramFile};
use crate::timer::model::Foreknown;
use crate::timer::protocol::ProgramRef;

/// Default maximum number of concurrent compilations, and of those by workers that hold nothing of a device.
const MAX_COMPILE_JOBS: usize = 8;
const MAX_JOBS_WITHOUT_DEVICE: usize = 16;

fn default_compile_jobs(device: &DeviceFingerprint, without_device: bool) -> usize {
    let platform = device.identity.platform.as_str();
    let quiet_gpu =
        device.environment.xla_autotuning.is_some() && !xla_measures(platform, &device.environment.xla_flags);
    let most = match platform {
        _ if without_device => MAX_JOBS_WITHOUT_DEVICE,
        "cpu" => MAX_COMPILE_JOBS,
        _ if quiet_gpu => MAX_COMPILE_JOBS,
        _ => 1,
    };
    std::thread::available_parallelism().map_or(1, usize::from).min(most)
}

/// Finds or compiles the executables of programs for one device.
pub(super) struct ExecutableSource {
    compilers: Compilers<CompileWorker>,
    store: ExecutableStore,
    compiled: Option<Arc<CompiledStore>>,
    /// Seconds and bytes of the executables kept for the device, read on first use.
    costs: OnceCell<Vec<(f64, u64)>>,
    plugin_digest: Digest,
    device: DeviceFingerprint,
    device_index: usize,
    /// Workers can compile for the device without opening it.
    without_device: bool,
    /// A compilation during which XLA measures on the device runs alone.
    alone_if_measured: bool,
}

impl ExecutableSource {
    /// A source for this device; also notes on the stores of other machines, one line each.
    ///
    /// # Errors
    /// If one of those is not a store.
    pub(super) fn open(
        options: &PjrtOptions,
        store: ExecutableStore,
        commands: CompileCommands,
        (device, plugin_digest): (DeviceFingerprint, Digest),
    ) -> Result<(Self, Vec<String>), Failure> {
        let without_device = commands.without_device.is_some();
        let compile_jobs = options.compile_jobs.unwrap_or_else(|| default_compile_jobs(&device, without_device));
        let (limits, kept) = (options.limits.clone(), store.clone());
        let compilers = Compilers::new(compile_jobs, move |task| CompileWorker::start(&commands, &limits, &kept, task));
        let mut source = Self {
            compilers,
            store,
            compiled: None,
            costs: OnceCell::new(),
            plugin_digest,
            device,
            device_index: options.device,
            without_device,
            alone_if_measured: options.compile_jobs.is_none(),
        };
        let Some(compiled) = &options.compiled else { return Ok((source, Vec::new())) };
        let key = source.key(Digest::of(&[]), String::new(), Partitions::of(&[]));
        let (compiled, notes) = CompiledStore::open(compiled, &key)?;
        source.compiled = Some(Arc::new(compiled));
        Ok((source, notes))
    }

    /// The same source for another timer of the device.
    pub(super) fn share(&self) -> Self {
        Self {
            compilers: self.compilers.share(),
            store: self.store.clone(),
            compiled: self.compiled.clone(),
            costs: OnceCell::new(),
            plugin_digest: self.plugin_digest,
            device: self.device.clone(),
            device_index: self.device_index,
            without_device: self.without_device,
            alone_if_measured: self.alone_if_measured,
        }
    }

    /// What the executable of a program depends on.
    pub(super) fn key_of(&self, program: &ProgramFile, build: &Build, process: Option<&ProcessFlags>) -> ExecutableKey {
        let mut key =
            self.key(program.program.digest, program.program.format.pjrt_format().to_owned(), partitions_of(program));
        if let Some(flags) = process {
            key.xla_flags = flags.in_key();
        }
        let base_options = program.compile_options.as_ref().map(|options| options.digest);
        ExecutableKey { overrides: build.options.clone(), copy: build.copy, base_options, ..key }
    }

    fn key(&self, program: Digest, format: String, partitions: Partitions) -> ExecutableKey {
        ExecutableKey {
            program,
            format,
            compile_options: partitioned_options(partitions, &[], &BTreeMap::new()),
            plugin: self.plugin_digest,
            device: self.device.identity.to_string(),
            device_index: self.device_index,
            cpu_features: cpu_features(),
            xla_flags: self.device.environment.xla_flags.clone(),
            target: None,
            toolchain: None,
            overrides: BTreeMap::new(),
            base_options: None,
            copy: 0,
        }
    }

    /// What compiling a program needs of the device.
    pub(super) fn access(&self, program: &ProgramRef) -> DeviceAccess {
        let platform = &self.device.identity.platform;
        if platform == "cpu" {
            return DeviceAccess::Shared;
        }
        // an unreadable program is refused by whoever compiles it
        let code = read_code(program).unwrap_or_default();
        let is_measured = xla_measures(platform, &self.device.environment.xla_flags) && is_measured_by_xla(&code);
        match is_measured {
            true if self.alone_if_measured => DeviceAccess::Alone,
            false if self.without_device && Partitions::of(&code).count == 1 => DeviceAccess::None,
            _ => DeviceAccess::Shared,
        }
    }

    /// Announces programs, which the workers compile while something else is done.
    pub(super) fn announce(&self, tasks: impl IntoIterator<Item = (usize, CompileTask)>) -> Result<(), Failure> {
        self.compilers.submit(tasks)
    }

    /// The outcome of a program that was announced; `None` if it must be compiled now, because it was not, or because
    /// it cannot be compiled without the device.
    pub(super) fn take(&mut self, candidate: usize) -> Option<Result<CompiledTask, Failure>> {
        match self.compilers.take(candidate) {
            Some(Err(failure)) if self.needs_device(&failure) => None,
            outcome => outcome,
        }
    }

    /// Whether a failure may be due to compiling without the device, which is not tried again.
    fn needs_device(&mut self, failure: &Failure) -> bool {
        if !self.without_device || failure.kind != FailureKind::Device {
            return false;
        }
        tracing::warn!("programs are compiled by workers that open the device: {failure}");
        self.without_device = false;
        true
    }

    /// Compiles in a worker whose crash does not affect others. An announced program is already in progress.
    pub(super) fn compile(&mut self, mut task: CompileTask) -> Result<CompiledTask, Failure> {
        let compiled = match self.compile_once(task.clone()) {
            Err(failure) if self.needs_device(&failure) => {
                task.access = self.access(&task.program);
                self.compile_once(task)
            }
            compiled => compiled,
        };
        compiled.map_err(as_compile_failure)
    }

    fn compile_once(&self, task: CompileTask) -> Result<CompiledTask, Failure> {
        let candidate = task.candidate;
        self.compilers.submit([(candidate, task)])?;
        let nothing = || Err(Failure::new(FailureKind::Device, "a compilation was dropped"));
        self.compilers.take(candidate).unwrap_or_else(nothing)
    }

    /// Stops all compilation, so that the measurement has the machine for itself.
    pub(super) fn quiet(&self) {
        self.compilers.hold();
        if self.device.identity.platform != "cpu" {
            // a client holds memory of the measured device
            self.compilers.free_device();
        }
    }

    /// Drops every program that is compiled or waits for it.
    pub(super) fn clear(&self) {
        self.compilers.clear();
    }

    /// Ends the idle compile workers.
    pub(super) fn retire(&self) {
        self.compilers.retire();
    }

    /// The kept executable of a key.
    pub(super) fn find(&self, key: &ExecutableKey) -> Option<StoredExecutable> {
        self.store.find(key)
    }

    /// Whether a program need not be compiled.
    pub(super) fn is_known(&self, program: &ProgramFile, key: &ExecutableKey) -> bool {
        self.store.find(key).is_some() || self.compiled_before(program, key).is_some()
    }

    /// The outcome of a program that was compiled without the device; `None` if it is unknown or must be determined
    /// here.
    pub(super) fn compiled_before(&self, program: &ProgramFile, key: &ExecutableKey) -> Option<CompiledBefore> {
        // without a device, programs are compiled with default options
        let is_default = key.overrides.is_empty()
            && key.base_options.is_none()
            && key.copy == 0
            && key.xla_flags == self.device.environment.xla_flags;
        let found = self.compiled.as_ref().filter(|_| is_default)?.find(key)?;
        // With a device, XLA measures how to compute some operations; without one it picks blindly. A race between the
        // two kinds of executables would compare these choices only.
        let measures = xla_measures(&self.device.identity.platform, &self.device.environment.xla_flags);
        let is_blind = || read_code(&program.into()).map_or(true, |code| is_measured_by_xla(&code));
        (!measures || !is_blind()).then_some(found)
    }

    /// The cost of compiling programs, each with its build.
    pub(super) fn forecast<'a>(&self, programs: impl ExactSizeIterator<Item = (&'a ProgramFile, Build)>) -> Forecast {
        let count = programs.len();
        let is_kept =
            |(program, build): &(&ProgramFile, Build)| self.is_known(program, &self.key_of(program, build, None));
        let kept = programs.filter(is_kept).count();
        let known = self.costs.get_or_init(|| {
            let device = self.device.identity.to_string();
            let listed = self.store.listed().unwrap_or_default();
            listed.iter().filter(|listed| listed.key.device == device).filter_map(ListedExecutable::cost).collect()
        });
        Forecast::by(known, count - kept, kept, self.compilers.jobs())
    }

    /// What a compiler without the device found out about a program; `build_of` is asked only if it may have refused
    /// it.
    pub(super) fn foreknown(
        &self,
        program: &Program,
        file: &dyn Fn() -> Option<ProgramFile>,
        build_of: impl Fn(&ProgramFile) -> Build,
    ) -> Foreknown {
        let Some(note) = self.compiled.as_ref().and_then(|compiled| compiled.note(program.digest)) else {
            return Foreknown::default();
        };
        let figures = CompilerFigures { memory: note.memory, kernels: note.kernels.clone(), cost: note.cost };
        // most were not refused, and that check does not read the program
        let file = note.refused.as_ref().and_then(|_| file());
        let refused = file.and_then(|program| {
            match self.compiled_before(&program, &self.key_of(&program, &build_of(&program), None))? {
                CompiledBefore::Refused(reason) => Some(reason),
                CompiledBefore::Executable(_) => None,
            }
        });
        Foreknown { figures: Some(figures), refused }
    }
}

/// The number of partitions of a program. An unreadable program is never compiled.
fn partitions_of(program: &ProgramFile) -> Partitions {
    Partitions::of(&read_code(&program.into()).unwrap_or_default())
}
