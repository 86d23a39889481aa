//! Names and bounds of the exchange with Tokamax.

/// The tool, in messages.
pub(super) const TOKAMAX: &str = "Tokamax";
/// What an imported entry's [`Peer`](crate::cache::Peer) is marked with.
pub(super) const FORMAT: &str = "tokamax";
/// Where an imported key keeps what Tokamax calls its device: part of the identity, so that an entry that knows its
/// hardware only by this name is never taken for this device's own.
pub(super) const DEVICE_KIND: &str = "tokamax_device_kind";
/// Largest file that is read.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 20;
/// Longest text of all records of one call.
pub(super) const MAX_CALL_BYTES: usize = 1 << 20;
/// Longest text of what a result holds besides its calls, which each of them keeps.
pub(super) const MAX_ENVELOPE_BYTES: usize = 4 << 10;
/// Maximum number of records that share one label.
pub(super) const MAX_RECORDS: usize = 64;
