//! `replay:PATH`: replays earlier measurements in the same order. No process, no clock, no randomness.
//!
//! A file is a [`Recording`] of samples, which [`ReplayTimer`] replays; a folder holds profiles with a [`ProfileIndex`]
//! of their executions, from which [`ProfileReplay`] reads the durations. [`ReplayKeeper`] creates such folders.

mod calls;
mod index;
mod json_file;
mod keep;
mod profiles;
mod recording;

pub use calls::{Method, RecordedFailure};
pub use index::{Functions, IndexedInvocation, ProfileIndex, TakenProfile, TakenRound};
pub use keep::ReplayKeeper;
pub use profiles::ProfileReplay;
pub use recording::{RecordedCandidate, RecordedInvocation, RecordedOutput, Recording, ReplayTimer};
