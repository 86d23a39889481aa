//! The memory of a compiled program, from the buffer assignment of its `HloProto`.
//!
//! Field numbers: `BufferAssignmentProto` and what it holds, in `xla/service/hlo.proto` of openxla/xla.

use std::collections::HashMap;

use serde::Serialize;

use super::module::HloModule;
use crate::wire::{WireCursor, WireError, WireValue};

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

/// A `LogicalBufferProto`.
#[derive(Default)]
struct Buffer<'a> {
    bytes: u64,
    instruction: u64,
    name: &'a [u8],
}

/// The numeric fields of a message; the last of each counts.
fn numbers<const N: usize>(message: &[u8], wanted: [u32; N]) -> Result<[u64; N], WireError> {
    let mut found = [0; N];
    for field in WireCursor::new(message) {
        let (number, value) = field?;
        let place = wanted.iter().position(|&one| one == number);
        if let (Some(slot), Some(value)) = (place.and_then(|place| found.get_mut(place)), value.as_varint()) {
            *slot = value;
        }
    }
    Ok(found)
}

impl ProgramMemory {
    /// Reads a module's `HloProto`; `None` if it has no buffer assignment, as before compilation, or a damaged one.
    pub fn of(module: &HloModule<'_>) -> Option<Self> {
        let assignment = module.buffer_assignment?;
        Self::read(assignment, module).ok()
    }

    fn read(assignment: &[u8], module: &HloModule<'_>) -> Result<Self, WireError> {
        let mut memory = Self::default();
        let mut buffers = HashMap::new();
        let mut traces = Vec::new();
        for field in WireCursor::new(assignment) {
            match field? {
                (1, WireValue::Bytes(message)) => {
                    let (id, buffer) = Buffer::read(message)?;
                    buffers.insert(id, buffer);
                }
                (3, WireValue::Bytes(message)) => memory.add_allocation(message)?,
                (4, WireValue::Bytes(message)) => traces.push(message),
                _ => {}
            }
        }
        let mut alive = Vec::new();
        for trace in traces {
            let (peak, at_peak) = replay(trace, &buffers)?;
            if peak > memory.heap_peak_bytes {
                (memory.heap_peak_bytes, alive) = (peak, at_peak);
            }
        }
        let names: HashMap<i64, &str> = module.instructions.iter().map(|one| (one.id, &*one.name)).collect();
        let alive = alive.iter().filter_map(|id| buffers.get(id));
        memory.live = alive
            .map(|buffer| {
                let name = names.get(&(buffer.instruction as i64)).map(|&name| name.to_owned());
                let instruction = name.unwrap_or_else(|| String::from_utf8_lossy(buffer.name).into_owned());
                LiveBuffer { instruction, bytes: buffer.bytes }
            })
            .collect();
        memory.live.sort_by(|one, other| (other.bytes, &one.instruction).cmp(&(one.bytes, &other.instruction)));
        Ok(memory)
    }

    fn add_allocation(&mut self, message: &[u8]) -> Result<(), WireError> {
        let [bytes, is_thread_local, is_parameter, is_live_out, is_constant] = numbers(message, [2, 3, 5, 7, 12])?;
        let [is_thread_local, is_parameter, is_live_out, is_constant] =
            [is_thread_local, is_parameter, is_live_out, is_constant].map(|flag| flag != 0);
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
        Ok(())
    }
}

impl<'a> Buffer<'a> {
    fn read(message: &'a [u8]) -> Result<(u64, Self), WireError> {
        let [id, bytes] = numbers(message, [1, 2])?;
        let mut buffer = Self { bytes, ..Self::default() };
        for field in WireCursor::new(message) {
            let (3, WireValue::Bytes(place)) = field? else { continue };
            [buffer.instruction] = numbers(place, [4])?;
            for field in WireCursor::new(place) {
                if let (2, WireValue::Bytes(name)) = field? {
                    buffer.name = name;
                }
            }
        }
        Ok((id, buffer))
    }
}

/// Replays a `HeapSimulatorTrace`: the maximum number of bytes alive at once, and the buffers alive then.
///
/// A buffer that shares another's memory uses none of its own. The memory is freed with the last of them.
fn replay(trace: &[u8], buffers: &HashMap<u64, Buffer<'_>>) -> Result<(u64, Vec<u64>), WireError> {
    let mut events = Vec::new();
    for field in WireCursor::new(trace) {
        if let (1, WireValue::Bytes(event)) = field? {
            events.push(numbers(event, [1, 2, 5])?);
        }
    }
    let (mut peak, mut peak_at) = (0_u64, 0);
    let mut heap = Heap::default();
    for (at, event) in events.iter().enumerate() {
        heap.step(*event, buffers);
        if heap.bytes > peak {
            (peak, peak_at) = (heap.bytes, at + 1);
        }
    }
    let mut heap = Heap::default();
    events.iter().take(peak_at).for_each(|event| heap.step(*event, buffers));
    Ok((peak, heap.users.into_keys().collect()))
}

#[derive(Default)]
struct Heap {
    bytes: u64,
    /// By buffer that has memory, how many use it.
    users: HashMap<u64, u64>,
    /// By sharing buffer, the buffer whose memory it uses.
    shares: HashMap<u64, u64>,
}

impl Heap {
    /// An event: its kind, its buffer, and the buffer whose memory that one shares.
    fn step(&mut self, [kind, buffer, canonical]: [u64; 3], buffers: &HashMap<u64, Buffer<'_>>) {
        let size = |id: u64| buffers.get(&id).map_or(0, |buffer| buffer.bytes);
        match kind {
            0 => {
                if self.users.insert(buffer, 1).is_none() {
                    self.bytes = self.bytes.saturating_add(size(buffer));
                }
            }
            1 => {
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
            _ => {
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
