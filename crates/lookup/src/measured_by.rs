//! How a duration was measured. Durations that were measured differently are never mixed in one decision.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::setters;

/// Program and version that measured, as it is written.
pub const TOOL: &str = concat!("autotune-lowered ", env!("CARGO_PKG_VERSION"));

open_enum! {
    /// Which clock a sample was taken with.
    pub enum Source {
        /// Host clock around launch and completion.
        HostWall = "host-wall",
        /// Device time from a profile.
        DeviceProfile = "device-profile",
        /// Samples recorded earlier.
        Replay = "replay",
    }
}

open_enum! {
    /// The metric: which part of an execution is its duration.
    #[derive(Default)]
    pub enum Metric {
        /// Launch to completion by the clock of the source.
        #[default]
        Elapsed = "elapsed",
        /// First start to last end of the execution's events in a profile.
        Span = "span",
        /// Union of the intervals of the execution's events in a profile.
        Busy = "busy",
    }
}

open_enum! {
    /// The state of the caches before a run.
    #[derive(Default)]
    pub enum CacheState {
        /// As the previous run left them.
        #[default]
        Warm = "warm",
        /// Flushed before every run, outside the timed region.
        Cold = "cold",
    }
}

open_enum! {
    /// What other processes did on the cores meanwhile.
    #[derive(Default)]
    pub enum MachineLoad {
        /// Nothing that disturbs.
        #[default]
        Quiet = "quiet",
        /// They used the cores that the measurement waited for.
        Contended = "contended",
    }
}

impl MachineLoad {
    /// Whether it is the usual one, which is not stored.
    pub fn is_quiet(&self) -> bool {
        *self == Self::Quiet
    }

    /// The load of a measurement.
    pub fn of(is_contended: bool) -> Self {
        if is_contended { Self::Contended } else { Self::Quiet }
    }
}

open_enum! {
    /// How a program's kernels are launched on a GPU.
    pub enum LaunchMode {
        /// As command buffers, which CUDA calls graphs: captured once and replayed. XLA's default.
        Replay = "replay",
        /// One by one.
        Eager = "eager",
    }
}

impl LaunchMode {
    /// For people.
    pub fn to_words(&self) -> &str {
        match self {
            Self::Replay => "as command buffers",
            Self::Eager => "one by one",
            Self::Other(other) => other,
        }
    }
}

impl CacheState {
    /// Whether it is the usual state, which is not stored.
    pub fn is_warm(&self) -> bool {
        *self == Self::Warm
    }
}

/// A GPU's clock limits in MHz, as reported by its driver: set by an administrator, or the highest possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Clocks {
    /// Its multiprocessors.
    pub sm_mhz: u32,
    /// Its memory.
    pub memory_mhz: u32,
    /// The highest setting of its multiprocessors.
    pub max_sm_mhz: u32,
    /// The highest setting of its memory.
    pub max_memory_mhz: u32,
}

impl Clocks {
    /// Whether nothing was set below the highest, which is the usual state.
    pub fn are_free(&self) -> bool {
        self.sm_mhz >= self.max_sm_mhz && self.memory_mhz >= self.max_memory_mhz
    }
}

impl fmt::Display for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sm_mhz, memory_mhz, max_sm_mhz, max_memory_mhz } = self;
        match self.are_free() {
            true => write!(f, "up to {max_sm_mhz} MHz, memory {max_memory_mhz} MHz"),
            false => write!(f, "{sm_mhz} of {max_sm_mhz} MHz, memory {memory_mhz} of {max_memory_mhz} MHz"),
        }
    }
}

/// Timer, clock, metric, state of the caches, launch mode, the GPU's clocks, and the compiler.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasuredBy {
    /// Name of the timer, as in `--timer`: `pjrt`, `jax`, `command:…`, `replay:…`.
    pub timer: String,
    /// The samples' clock.
    pub source: Source,
    /// The metric: which part of an execution is its duration; `elapsed` if it is absent.
    #[serde(default)]
    pub metric: Metric,
    /// The state of the caches before every timed run; not written if they were warm.
    #[serde(default, skip_serializing_if = "CacheState::is_warm")]
    pub cache_state: CacheState,
    /// What other processes did on the cores; not written if they were quiet.
    #[serde(default, skip_serializing_if = "MachineLoad::is_quiet")]
    pub load: MachineLoad,
    /// How kernels were launched; `None` if there is no choice, as on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchMode>,
    /// The GPU's clock limits; `None` if no driver reports them, as for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// The programs' compiler, see [`Environment::compiler`](crate::device::Environment::compiler); `None` if not
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<String>,
}

setters!(MeasuredBy {
    metric: Metric,
    cache_state: CacheState,
    load: MachineLoad,
    launch: Option<LaunchMode>,
    clocks: Option<Clocks>,
    compiler: Option<String>
});

impl MeasuredBy {
    /// What differs from the conditions of a look-up for runs that find the caches in the state `here`, on a GPU whose
    /// clocks nobody set. The launch mode follows from `XLA_FLAGS`, which belong to the environment.
    pub(crate) fn differences(&self, here: &CacheState) -> Vec<String> {
        let caches = (self.cache_state != *here).then(|| format!("caches `{}` there, `{here}` here", self.cache_state));
        let clocks = self.set_clocks().map(|clocks| format!("the GPU's clocks were set there: {clocks}"));
        let load = (!self.load.is_quiet()).then(|| "other processes used its cores there".to_owned());
        caches.into_iter().chain(clocks).chain(load).collect()
    }

    /// The GPU's clocks, if they are set below the highest.
    pub fn set_clocks(&self) -> Option<Clocks> {
        self.clocks.filter(|clocks| !clocks.are_free())
    }

    /// What must be equal for samples to be compared. Unlocked clocks are the usual case, and so is an unknown clock.
    pub fn as_condition(&self) -> Self {
        Self { clocks: self.set_clocks(), ..self.clone() }
    }

    /// Samples of a timer's clock, of whole executions with warm caches.
    pub fn new(timer: impl Into<String>, source: Source) -> Self {
        Self {
            timer: timer.into(),
            source,
            metric: Metric::default(),
            cache_state: CacheState::default(),
            load: MachineLoad::default(),
            launch: None,
            clocks: None,
            compiler: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_unusual_where_they_are_set_and_old_entries_are_as_they_were() {
        let clocks = |sm_mhz, memory_mhz| Some(Clocks { sm_mhz, memory_mhz, max_sm_mhz: 1980, max_memory_mhz: 2619 });
        let by = |clocks| MeasuredBy::new("pjrt", Source::HostWall).clocks(clocks);
        let text = serde_json::to_string(&by(None)).unwrap();
        assert_eq!(text, r#"{"timer":"pjrt","source":"host-wall","metric":"elapsed"}"#);
        assert_eq!(serde_json::from_str::<MeasuredBy>(&text).unwrap(), by(None));
        let set = by(clocks(1410, 2619));
        assert_eq!(serde_json::from_str::<MeasuredBy>(&serde_json::to_string(&set).unwrap()).unwrap(), set);
        assert_eq!(
            set.differences(&CacheState::Warm),
            ["the GPU's clocks were set there: 1410 of 1980 MHz, memory 2619 of 2619 MHz".to_owned()]
        );
        let free = by(clocks(1980, 2619));
        assert!([&free, &by(None)].iter().all(|by| by.differences(&CacheState::Warm).is_empty()));
        assert_eq!(free.clocks.unwrap().to_string(), "up to 1980 MHz, memory 2619 MHz");
        assert_eq!((free.as_condition(), set.as_condition()), (by(None), set.clone()));
        let cold = set.cache_state(CacheState::Cold);
        assert_eq!(cold.differences(&CacheState::Warm).len(), 2);
        assert_eq!(cold.differences(&CacheState::Cold).len(), 1);
        assert_eq!(free.differences(&CacheState::Cold), ["caches `warm` there, `cold` here"]);
    }
}
