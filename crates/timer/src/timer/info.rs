//! What a timer is: its name, its clock, its device, and what it can do.

use super::protocol::{DeviceMemory, Hello, capability};
use crate::device::{DeviceFingerprint, gpu_launch};
use crate::measured_by::{CacheState, Clocks, MeasuredBy, Metric, Source};
use crate::setters;

/// A timer's description. All but its last three members stay the same from its start.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TimerInfo {
    /// Name as in `--timer`: `pjrt`, `command:…`, `replay:…`.
    pub name: String,
    /// The clock of every sample.
    pub source: Source,
    /// What counts as an execution's duration.
    pub metric: Metric,
    /// The device that samples come from.
    pub device: DeviceFingerprint,
    /// How many devices of its kind there are here, including that one, if known: a program of several partitions runs
    /// on that device and on those after it.
    pub device_count: Option<usize>,
    /// Memory of the device before the first job; `None` if it is not reported, as for a CPU.
    pub device_memory: Option<DeviceMemory>,
    /// The clock limits of its GPU; `None` if not reported.
    pub clocks: Option<Clocks>,
    /// The resolution of the samples' clock, nanoseconds: the larger of its step and the cost of reading it. `None` if
    /// it is unknown, or if no clock is read around a run, as for durations from profiles.
    pub clock_resolution_ns: Option<u64>,
    /// The compilers, if they are others than the device's environment names.
    pub compiler: Option<String>,
    /// Remarks for the user, one line each: which clock the times come from and why, for instance.
    pub notes: Vec<String>,
    /// What it can do.
    pub can: TimerCapabilities,
    /// A process that the tuner did not start, and that runs the candidates or starts those that do.
    pub process: Option<u32>,
    /// Number of measuring workers started so far; samples of different epochs are never paired.
    pub epoch: u32,
    /// The clocks of its GPU during the measurement, for people; `None` if not reported.
    pub clocks_seen: Option<String>,
    /// The part of its GPU's time that other processes used around the last measurement; `None` if not reported.
    pub others_use: Option<f64>,
}

/// What a timer can do, and how it differs from others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerCapabilities {
    /// It compiles programs in processes that do not measure, so that these may have options of their own
    /// ([`Build::process`](super::Build::process)).
    pub set_process_options: bool,
    /// It builds the program of a config by itself, so that configs without a recorded program can be tried.
    pub build_programs: bool,
    /// Its inputs or outputs are stored by call: no other job can be started to search for configs.
    pub only_one_job_a_call: bool,
    /// Compilation may continue while [outputs](super::Timer::outputs) are taken: nothing is timed then.
    pub compile_beside_outputs: bool,
    /// It measures a whole round in one go, under one profile. On a failure it is unknown which launch is to blame.
    pub measure_rounds: bool,
    /// It keeps outputs that are large enough, and compares others with them.
    pub compare_outputs: bool,
    /// Its processes are on this machine's cores, which others may use as well.
    pub on_these_cores: bool,
    /// Outputs were compared when the samples were taken, and what differed then fails: a replay of profiles, which
    /// hold no outputs.
    pub skip_outputs: bool,
}

impl TimerInfo {
    /// A timer with this name and clock on a device. It measures elapsed time and can do nothing in particular.
    pub fn new(name: impl Into<String>, source: Source, device: DeviceFingerprint) -> Self {
        Self {
            name: name.into(),
            source,
            metric: Metric::Elapsed,
            device_count: None,
            device_memory: None,
            clocks: None,
            clock_resolution_ns: None,
            compiler: None,
            notes: Vec::new(),
            can: TimerCapabilities::default(),
            process: None,
            epoch: 1,
            clocks_seen: None,
            others_use: None,
            device,
        }
    }

    /// The timer that a worker makes. What is not in the worker's hands: its name, its device with what is known of its
    /// environment, and its metric.
    pub(super) fn of_worker(name: String, hello: &Hello, device: DeviceFingerprint, metric: Metric) -> Self {
        let profiles = hello.can(capability::PROFILE);
        // no clock is read around a run that is timed by its profile
        let reads_clock = hello.source == Source::HostWall && !profiles;
        let can = TimerCapabilities {
            build_programs: hello.can(capability::BUILD_PROGRAMS),
            measure_rounds: profiles,
            compare_outputs: hello.can(capability::COMPARE_OUTPUTS),
            on_these_cores: true,
            ..TimerCapabilities::default()
        };
        let mut info = Self::new(name, hello.source.clone(), device);
        info.device_memory = hello.memory;
        info.process = hello.process;
        info.clock_resolution_ns = hello.clock_resolution_ns.filter(|&resolution| reads_clock && resolution > 0);
        info.metric(metric).clocks(hello.clocks).notes(hello.notes.clone()).can(can)
    }

    /// How samples are taken if the caches are in this state before each run.
    pub fn measured_by(&self, cache_state: &CacheState) -> MeasuredBy {
        MeasuredBy::new(&self.name, self.source.clone())
            .metric(self.metric.clone())
            .cache_state(cache_state.clone())
            .launch(gpu_launch(&self.device.identity.platform, &self.device.environment.xla_flags))
            .clocks(self.clocks)
            .compiler(self.compiler.clone().or_else(|| self.device.environment.compiler()))
    }
}

setters!(TimerInfo {
    metric: Metric,
    device_count: Option<usize>,
    clocks: Option<Clocks>,
    notes: Vec<String>,
    can: TimerCapabilities,
});
