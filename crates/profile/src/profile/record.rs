//! One event, as it is held until its execution is folded: 32 bytes.

use std::cmp::Reverse;

use super::interval::Interval;

/// One event of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time: Interval,
    pub(super) operation: u32,
    /// The event's own name on a device's stream, where several kernels may be of one operation; 0 elsewhere.
    pub(super) kernel: u32,
    /// Its line. While a chunk is read: the index of its execution in the chunk. The highest bit is [`CONTINUES`].
    place: u32,
}

/// In a record's place: it is of the same command buffer's launch as the one before it.
const CONTINUES: u32 = 1 << 31;

impl Record {
    pub(super) fn new(time: Interval, operation: u32, place: u32) -> Self {
        Self { time, operation, kernel: 0, place }
    }

    /// The same at another place, its operation with another number.
    pub(super) fn at(self, place: u32, operation: u32) -> Self {
        Self { operation, place: place | (self.place & CONTINUES), ..self }
    }

    /// The same, with the event's own name.
    pub(super) fn of_kernel(self, kernel: u32) -> Self {
        Self { kernel, ..self }
    }

    /// The same, of the launch before it or not.
    pub(super) fn continuing(self, continues: bool) -> Self {
        Self { place: self.place() | if continues { CONTINUES } else { 0 }, ..self }
    }

    pub(super) fn place(&self) -> u32 {
        self.place & !CONTINUES
    }

    /// Whether it is of the same command buffer's launch as the one before it, so that no execution begins with it.
    pub(super) fn continues(&self) -> bool {
        self.place & CONTINUES != 0
    }

    /// Records in this order are by start, the longest first.
    pub(super) fn order(&self) -> (i64, Reverse<i64>) {
        (self.time.start_ps, Reverse(self.time.end_ps))
    }
}
