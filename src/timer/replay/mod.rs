//! `replay:PATH`: what was measured earlier, given again in the same order. No process, no clock, no chance.
//!
//! A file is a [`Recording`] of samples, which [`ReplayTimer`] gives; a folder holds profiles and a [`ProfileIndex`]
//! of whose executions they hold, from which [`ProfileReplay`] reads the durations. [`ReplayKeeper`] makes such folders.

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
