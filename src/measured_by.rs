//! How a duration was measured. Durations that were measured differently never meet in one decision.

use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::setters::setters;

/// Program and version that measured, as what it writes has it.
#[cfg(feature = "tuner")]
pub(crate) const TOOL: &str = concat!("autotune-lowered ", env!("CARGO_PKG_VERSION"));

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
    /// What of an execution is its duration.
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
    /// What a run finds in the caches.
    #[derive(Default)]
    pub enum CacheState {
        /// What the run before left.
        #[default]
        Warm = "warm",
        /// Nothing of the program's: caches are flushed before every run, outside the timed region.
        Cold = "cold",
    }
}

open_enum! {
    /// How a GPU is handed the kernels of a program.
    pub enum Launch {
        /// As command buffers, which CUDA calls graphs: captured once and replayed. XLA's default.
        Replay = "replay",
        /// One by one.
        Eager = "eager",
    }
}

impl CacheState {
    /// Whether it is the usual state, which is not written down.
    pub fn is_warm(&self) -> bool {
        *self == Self::Warm
    }
}

/// Timer, clock, metric, state of the caches, and compiler of what was timed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasuredBy {
    /// Name of the timer, as in `--timer`: `pjrt`, `jax`, `command:…`, `replay:…`.
    pub timer: String,
    /// The samples' clock.
    pub source: Source,
    /// What of an execution is its duration. What was stored before there was a choice is `elapsed`.
    #[serde(default)]
    pub metric: Metric,
    /// What every timed run found in the caches; not written where they were warm.
    #[serde(default, skip_serializing_if = "CacheState::is_warm")]
    pub cache_state: CacheState,
    /// How the device was handed the kernels; `None` where there is no choice, as on a CPU, and of what was stored before there
    /// was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// What compiled the programs, see [`Environment::compiler`](crate::device::Environment::compiler); `None` where
    /// nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<String>,
}

setters!(MeasuredBy { metric: Metric, cache_state: CacheState, launch: Option<Launch>, compiler: Option<String> });

impl MeasuredBy {
    /// What is unusual about the conditions, for whoever looks a config up to run it under the usual ones. How kernels are
    /// launched follows from `XLA_FLAGS`, which belong to the environment.
    pub(crate) fn unusual(&self) -> Option<String> {
        (!self.cache_state.is_warm())
            .then(|| format!("caches `{}` there, `{}` here", self.cache_state, CacheState::Warm))
    }

    /// Samples of a timer's clock, of whole executions with warm caches.
    pub fn new(timer: impl Into<String>, source: Source) -> Self {
        Self {
            timer: timer.into(),
            source,
            metric: Metric::default(),
            cache_state: CacheState::default(),
            launch: None,
            compiler: None,
        }
    }
}
