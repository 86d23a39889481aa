//! The interface of a trace format.

use super::plane_names::{Argument, PlaneNames};

/// A row of slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Track {
    /// Different from that of every other track and process.
    pub(super) id: u32,
    /// Whether it is not the line's first.
    pub(super) is_extra: bool,
}

/// A format: its calls append bytes to `written`.
///
/// Times are nanoseconds, rounded down at both ends, so that slices that nest in picoseconds nest here too; a duration
/// may be one nanosecond off.
pub(super) trait Sink: Default {
    /// Begins a trace; `real_ns` is its time in nanoseconds since 1970, if known.
    fn start(&mut self, real_ns: Option<u64>);
    fn plane(&mut self, process: u32, name: &str, names: &PlaneNames<'_>);
    fn line(&mut self, process: u32, track: Track, name: &str);
    fn extra_track(&mut self, process: u32, line: Track, track: Track, name: &str);
    fn slice(
        &mut self,
        names: &PlaneNames<'_>,
        track: Track,
        place: u32,
        times: (u64, u64),
        arguments: &[Argument<'_>],
    );
    fn slice_end(&mut self, track: Track, end_ns: u64);
    fn finish(&mut self);
    fn written(&mut self) -> &mut Vec<u8>;
}
