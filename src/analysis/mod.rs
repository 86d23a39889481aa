//! Where the time goes: the only room in which [`crate::hlo`] and [`crate::profile`] meet.
//!
//! [`Programs`] finds the HLO of what a capture ran, from the capture itself and from [`HloFiles`].

pub mod collectives;
pub mod compile;
mod programs;

pub use programs::{HloFileError, HloFiles, Programs};
