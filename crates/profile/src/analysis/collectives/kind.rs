//! Kinds of collective, and their bandwidth factors.

use std::fmt;

use serde::Serialize;

/// What a collective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// Each device gets the data of all.
    AllGather,
    /// Each device gets the reduction over all.
    AllReduce,
    /// Each device sends a part to every other one.
    AllToAll,
    /// One device's data go to the others.
    CollectiveBroadcast,
    /// Pairs of devices: a send and a receive.
    CollectivePermute,
    /// Each device gets its part of the reduction.
    ReduceScatter,
    /// A device's memory to the host's.
    DeviceToHost,
    /// The host's memory to a device's.
    HostToDevice,
}

impl CollectiveKind {
    /// The kind of an HLO opcode, synchronous or the start of an asynchronous one.
    pub fn of_opcode(opcode: &str) -> Option<Self> {
        Some(match opcode.strip_suffix("-start").unwrap_or(opcode) {
            "all-gather" => Self::AllGather,
            "all-reduce" => Self::AllReduce,
            "all-to-all" => Self::AllToAll,
            "collective-broadcast" => Self::CollectiveBroadcast,
            "collective-permute" => Self::CollectivePermute,
            "reduce-scatter" => Self::ReduceScatter,
            _ => return None,
        })
    }

    /// Its name in HLO.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::AllReduce => "all-reduce",
            Self::AllToAll => "all-to-all",
            Self::CollectiveBroadcast => "collective-broadcast",
            Self::CollectivePermute => "collective-permute",
            Self::ReduceScatter => "reduce-scatter",
            Self::DeviceToHost => "device-to-host",
            Self::HostToDevice => "host-to-device",
        }
    }

    /// Whether no device can finish before all have started, so that clocks can be compared by it.
    pub fn is_common(self) -> bool {
        matches!(self, Self::AllGather | Self::AllReduce | Self::AllToAll | Self::ReduceScatter)
    }

    /// Algorithm bandwidth is this times message bytes per time, in a group of `n` (nsys-jax, `_collective_correction`,
    /// after nccl-tests, `PERFORMANCE.md`): of a gather and a scatter the size of the whole counts.
    pub fn algorithm_factor(self, n: u64) -> f64 {
        match self {
            Self::AllGather | Self::ReduceScatter => n as f64,
            _ => 1.0,
        }
    }

    /// Bus bandwidth is this times algorithm bandwidth, in a group of `n`.
    pub fn bus_factor(self, n: u64) -> f64 {
        let part = n.saturating_sub(1) as f64 / n.max(1) as f64;
        match self {
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => part,
            Self::AllReduce => 2.0 * part,
            Self::CollectiveBroadcast | Self::CollectivePermute | Self::DeviceToHost | Self::HostToDevice => 1.0,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
