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
    /// Each device sends parts of different sizes to the others.
    RaggedAllToAll,
    /// A device receives what another sends.
    Recv,
    /// Each device gets its part of the reduction.
    ReduceScatter,
    /// A device sends to another, which receives.
    Send,
    /// A kernel that sends and receives: NCCL makes permutations and exchanges of them.
    SendRecv,
    /// A device's memory to the host's.
    DeviceToHost,
    /// The host's memory to a device's.
    HostToDevice,
    /// A kernel of a communication library whose name does not say what it does.
    Unknown,
}

/// Libraries whose names are part of their kernels' names.
const LIBRARIES: [&str; 4] = ["nccl", "rccl", "msccl", "nvshmem"];
/// XLA's own kernels for communication within a host.
const OF_XLA: [&str; 3] = ["allreducekernel", "raggedalltoallkernel", "collectivekernel"];
/// What communication is called, without case and punctuation; a name that holds another comes first.
const NAMES: [(&str, CollectiveKind); 8] = [
    ("raggedalltoall", CollectiveKind::RaggedAllToAll),
    ("alltoall", CollectiveKind::AllToAll),
    ("reducescatter", CollectiveKind::ReduceScatter),
    ("allreduce", CollectiveKind::AllReduce),
    ("allgather", CollectiveKind::AllGather),
    ("sendrecv", CollectiveKind::SendRecv),
    ("collectivepermute", CollectiveKind::CollectivePermute),
    ("collectivebroadcast", CollectiveKind::CollectiveBroadcast),
];
/// Kernels' names are compared up to this length: template arguments may be long.
const MAX_KERNEL_NAME: usize = 4096;

impl CollectiveKind {
    /// The kind of an HLO opcode, synchronous or the start of an asynchronous one.
    pub fn of_opcode(opcode: &str) -> Option<Self> {
        Some(match opcode.strip_suffix("-start").unwrap_or(opcode) {
            "all-gather" => Self::AllGather,
            "all-reduce" => Self::AllReduce,
            "all-to-all" => Self::AllToAll,
            "collective-broadcast" => Self::CollectiveBroadcast,
            "collective-permute" => Self::CollectivePermute,
            "ragged-all-to-all" => Self::RaggedAllToAll,
            "recv" => Self::Recv,
            "reduce-scatter" => Self::ReduceScatter,
            "send" => Self::Send,
            _ => return None,
        })
    }

    /// The kind that words name in any place: `all-gather fusion`, `%wrapped_all_to_all`.
    pub(in crate::analysis) fn in_words(words: &str) -> Option<Self> {
        let letters = letters(words);
        NAMES.iter().find(|(name, _)| letters.contains(name)).map(|(_, kind)| *kind)
    }

    /// The kind of a kernel of NCCL, RCCL, MSCCL, NVSHMEM or XLA by its own name, such as
    /// `ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`. `ncclDevKernel_Generic` does not say what it does, and since NCCL
    /// 2.2 a name says only what the first operation of a group is.
    pub fn of_kernel(name: &str) -> Option<Self> {
        let letters = letters(name);
        let has = |part: &&str| letters.contains(*part);
        if !LIBRARIES.iter().any(has) {
            return if OF_XLA.iter().any(has) { Self::in_words(name) } else { None };
        }
        let broadcast = || letters.contains("broadcast").then_some(Self::CollectiveBroadcast);
        Some(Self::in_words(name).or_else(broadcast).unwrap_or(Self::Unknown))
    }

    /// Its name in HLO.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::AllReduce => "all-reduce",
            Self::AllToAll => "all-to-all",
            Self::CollectiveBroadcast => "collective-broadcast",
            Self::CollectivePermute => "collective-permute",
            Self::RaggedAllToAll => "ragged-all-to-all",
            Self::Recv => "recv",
            Self::ReduceScatter => "reduce-scatter",
            Self::Send => "send",
            Self::SendRecv => "send-recv",
            Self::Unknown => "unknown",
            Self::DeviceToHost => "device-to-host",
            Self::HostToDevice => "host-to-device",
        }
    }

    /// Whether no device can finish before all have started, so that clocks can be compared by it.
    pub fn is_common(self) -> bool {
        matches!(self, Self::AllGather | Self::AllReduce | Self::AllToAll | Self::RaggedAllToAll | Self::ReduceScatter)
    }

    /// Whether two devices take part in it.
    pub fn is_of_pairs(self) -> bool {
        matches!(self, Self::CollectivePermute | Self::Send | Self::Recv)
    }

    /// Whether the data go between devices, and not between a device and its host.
    pub fn is_between_devices(self) -> bool {
        !matches!(self, Self::DeviceToHost | Self::HostToDevice)
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
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::RaggedAllToAll => part,
            Self::AllReduce => 2.0 * part,
            Self::CollectiveBroadcast
            | Self::CollectivePermute
            | Self::Recv
            | Self::Send
            | Self::SendRecv
            | Self::DeviceToHost
            | Self::HostToDevice
            | Self::Unknown => 1.0,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name's letters and digits in lower case.
fn letters(name: &str) -> String {
    let all = name.chars().take(MAX_KERNEL_NAME).filter(char::is_ascii_alphanumeric);
    all.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of NCCL 2.4 to 2.28, RCCL of ROCm 5 to 7, NVSHMEM 3, and XLA.
    #[test]
    fn kernels_are_recognized_by_their_own_names() {
        for (name, kind) in [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                Some(CollectiveKind::AllReduce),
            ),
            (
                "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
                Some(CollectiveKind::AllGather),
            ),
            ("ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm*)", Some(CollectiveKind::ReduceScatter)),
            ("ncclAllReduceTreeLLKernel_sum_f16(ncclColl)", Some(CollectiveKind::AllReduce)),
            ("ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", Some(CollectiveKind::AllGather)),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", Some(CollectiveKind::SendRecv)),
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", Some(CollectiveKind::SendRecv)),
            ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", Some(CollectiveKind::CollectiveBroadcast)),
            ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", Some(CollectiveKind::Unknown)),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", Some(CollectiveKind::Unknown)),
            ("void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", Some(CollectiveKind::Unknown)),
            ("mscclKernel_Sum_half_Simple_false", Some(CollectiveKind::Unknown)),
            ("void nvshmemi_reducescatter_on_stream_kernel<float>()", Some(CollectiveKind::ReduceScatter)),
            ("stream_executor::gpu::RaggedAllToAllKernelImpl<4>(void*)", Some(CollectiveKind::RaggedAllToAll)),
            ("nvjet_sm90_tst_128x128", None),
            ("input_reduce_fusion", None),
            ("loop_all_gather_fusion", None),
        ] {
            assert_eq!(CollectiveKind::of_kernel(name), kind, "{name}");
        }
    }
}
