//! The version and the limits of the protocol.

/// Version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum length of a line of either side in bytes, including its newline. Larger data is passed as a file.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Maximum number of runs of one `measure`, over all its batches.
pub const MAX_RUNS: u32 = 10_000;

/// Maximum number of outputs that a worker keeps, because each answer about them is a single line.
pub const MAX_KEPT_OUTPUTS: usize = 2000;
