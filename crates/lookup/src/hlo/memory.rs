//! The memory of a compiled program, from the buffer assignment of its `HloProto`.

use std::collections::HashMap;

use prost::Message;
use serde::Serialize;

use super::module::HloModule;
use super::schema::hlo::heap_simulator_trace::{Event, event::Kind};
use super::schema::hlo::{BufferAllocationProto, HeapSimulatorTrace, HloProto, LogicalBufferProto};

/// Bytes of a program's allocations. XLA allocates all of them before a program runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProgramMemory {
    /// The sum of the following, in which an allocation that is both argument and result counts once.
    pub total_bytes: u64,
    /// Arguments.
    pub argument_bytes: u64,
    /// Results.
    pub output_bytes: u64,
    /// The part of its results that aliases arguments.
    pub alias_bytes: u64,
    /// Constants.
    pub constant_bytes: u64,
    /// Temporary memory.
    pub temporary_bytes: u64,
    /// The peak of bytes alive at once among the buffers that XLA placed by instruction order; 0 if the assignment has
    /// no trace.
    pub heap_peak_bytes: u64,
    /// The buffers that are alive at the peak, the largest first.
    pub live: Vec<LiveBuffer>,
}

/// A buffer that is alive at the peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LiveBuffer {
    /// The instruction that writes it.
    pub instruction: String,
    /// Its size.
    pub bytes: u64,
}

type Buffers = HashMap<i64, LogicalBufferProto>;

impl ProgramMemory {
    /// Reads a module's `HloProto`; `None` if it has no buffer assignment, as before compilation, or a damaged one.
    pub fn of(module: &HloModule) -> Option<Self> {
        let assignment = HloProto::decode(module.behind.clone()).ok()?.buffer_assignment?;
        let mut memory = Self::default();
        assignment.buffer_allocations.iter().for_each(|allocation| memory.add_allocation(allocation));
        let buffers: Buffers = assignment.logical_buffers.into_iter().map(|buffer| (buffer.id, buffer)).collect();
        let mut alive = Vec::new();
        for trace in &assignment.heap_simulator_traces {
            let (peak, at_peak) = replay(trace, &buffers);
            if peak > memory.heap_peak_bytes {
                (memory.heap_peak_bytes, alive) = (peak, at_peak);
            }
        }
        let names: HashMap<i64, &str> = module.instructions.iter().map(|one| (one.id(), one.name())).collect();
        let alive = alive.iter().filter_map(|id| buffers.get(id));
        let live = alive.map(|buffer| {
            let place = buffer.defined_at.as_ref();
            let name = place.and_then(|place| names.get(&place.instruction_id)).map(|&name| name.to_owned());
            let given = || place.map(|place| String::from_utf8_lossy(&place.instruction_name).into_owned());
            LiveBuffer { instruction: name.or_else(given).unwrap_or_default(), bytes: buffer.size }
        });
        memory.live = live.collect();
        memory.live.sort_by(|one, other| (other.bytes, &one.instruction).cmp(&(one.bytes, &other.instruction)));
        Some(memory)
    }

    fn add_allocation(&mut self, allocation: &BufferAllocationProto) {
        let bytes = allocation.size;
        let (is_parameter, is_live_out) = (allocation.is_entry_computation_parameter, allocation.maybe_live_out);
        let (is_constant, is_thread_local) = (allocation.is_constant, allocation.is_thread_local);
        let add = |sum: &mut u64, counts: bool| {
            if counts {
                *sum = sum.saturating_add(bytes);
            }
        };
        add(&mut self.argument_bytes, is_parameter);
        add(&mut self.output_bytes, is_live_out);
        add(&mut self.alias_bytes, is_parameter && is_live_out);
        add(&mut self.constant_bytes, is_constant);
        add(&mut self.temporary_bytes, !(is_parameter || is_live_out || is_constant || is_thread_local));
        // each thread has its own on its stack
        add(&mut self.total_bytes, !is_thread_local);
    }
}

/// Replays a `HeapSimulatorTrace`: the maximum number of bytes alive at once, and the buffers alive then.
///
/// A buffer that shares another's memory uses none of its own. The memory is freed with the last of them.
fn replay(trace: &HeapSimulatorTrace, buffers: &Buffers) -> (u64, Vec<i64>) {
    let (mut peak, mut peak_at) = (0_u64, 0);
    let mut heap = Heap::default();
    for (at, event) in trace.events.iter().enumerate() {
        heap.step(event, buffers);
        if heap.bytes > peak {
            (peak, peak_at) = (heap.bytes, at + 1);
        }
    }
    let mut heap = Heap::default();
    trace.events.iter().take(peak_at).for_each(|event| heap.step(event, buffers));
    (peak, heap.users.into_keys().collect())
}

#[derive(Default)]
struct Heap {
    bytes: u64,
    /// By buffer that has memory, how many use it.
    users: HashMap<i64, u64>,
    /// By sharing buffer, the buffer whose memory it uses.
    shares: HashMap<i64, i64>,
}

impl Heap {
    fn step(&mut self, event: &Event, buffers: &Buffers) {
        let (buffer, canonical) = (event.buffer_id, event.share_with_canonical_id);
        let size = |id: i64| buffers.get(&id).map_or(0, |buffer| buffer.size);
        match event.kind() {
            Kind::Alloc => {
                if self.users.insert(buffer, 1).is_none() {
                    self.bytes = self.bytes.saturating_add(size(buffer));
                }
            }
            Kind::Free => {
                let owner = self.shares.remove(&buffer).unwrap_or(buffer);
                let left = self.users.get_mut(&owner).map(|users| {
                    *users = users.saturating_sub(1);
                    *users
                });
                if left == Some(0) {
                    self.users.remove(&owner);
                    self.bytes = self.bytes.saturating_sub(size(owner));
                }
            }
            Kind::ShareWith => {
                self.shares.insert(buffer, canonical);
                // the memory of an already freed buffer is used again
                let users = self.users.entry(canonical).or_insert(0);
                if *users == 0 {
                    self.bytes = self.bytes.saturating_add(size(canonical));
                }
                *users = users.saturating_add(1);
            }
        }
    }
}
