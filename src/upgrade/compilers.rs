//! The two compilers' timers: on a device that both may hold, or on one that a process holds alone.

use crate::failure::Failure;
use crate::timer::{OneAtATime, SideBySide, Timer};

/// The new compiler's timer is the first one.
pub(super) const NEW: usize = 0;
pub(super) const OLD: usize = 1;

/// Both compilers' timers, the new one's first.
pub enum Compilers<'t> {
    /// Their processes live at the same time, and rounds alternate.
    Together(Box<SideBySide>),
    /// One process holds the device: blocks alternate.
    Apart(Box<OneAtATime<'t>>),
}

impl Compilers<'_> {
    /// The new compiler alone.
    ///
    /// # Errors
    /// If its timer has to be started and does not start.
    pub(super) fn new_alone(&mut self) -> Result<&mut dyn Timer, Failure> {
        match self {
            Self::Together(both) => Ok(both.first()),
            Self::Apart(both) => both.alone(NEW),
        }
    }

    /// Both as one.
    pub(super) fn as_one(&mut self) -> &mut dyn Timer {
        match self {
            Self::Together(both) => &mut **both,
            Self::Apart(both) => &mut **both,
        }
    }

    /// Whether one process holds the device.
    pub(super) fn are_apart(&self) -> bool {
        matches!(self, Self::Apart(_))
    }
}
