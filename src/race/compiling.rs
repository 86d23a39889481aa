//! How the candidates of a race are compiled: all at once or in waves, alone or beside other calls.

use super::device_seats::Seat;
use super::evidence::Evidence;
use super::identity::JobIdentity;

/// Who says which candidates are compiled next.
pub(crate) trait NextWave {
    /// Candidates to compile next, if so many calls compile at the same time; none if the rest is skipped.
    fn next(&mut self, evidence: &Evidence, identity: &JobIdentity, calls: usize) -> Vec<usize>;
}

/// How the candidates of a race are compiled.
pub(crate) struct Compiling<'a> {
    /// The waves in which candidates are compiled; all at once if `None`.
    pub(super) waves: Option<&'a mut dyn NextWave>,
    /// The race's place among those of the calls that are tuned side by side on this device.
    pub(super) seat: Option<&'a mut Seat>,
    /// Calls that compiled at the same time in the last wave, this one included.
    pub(super) beside: usize,
    /// Programs submitted so far.
    pub(super) tried: usize,
}

impl<'a> Compiling<'a> {
    /// All at once, or in waves.
    pub(crate) fn new(waves: Option<&'a mut dyn NextWave>, seat: Option<&'a mut Seat>) -> Self {
        Self { waves, beside: seat.as_ref().map_or(1, |seat| seat.seats()), seat, tried: 0 }
    }
}
