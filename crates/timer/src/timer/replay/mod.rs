//! `replay:PATH`: replays earlier measurements in the same order. No process, no clock, no randomness.
//!
//! A file is a [`Recording`] of samples, which [`ReplayTimer`] replays; a folder holds profiles with a [`ProfileIndex`]
//! of their executions, from which [`ProfileReplay`] reads the durations. [`ReplayKeeper`] creates such folders.
//!
//! ```
//! use autotune_lowered_timer::timer::replay::{Recording, ReplayTimer};
//!
//! let text = r#"{"schema": 1, "invocations": [],
//!     "device": {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}}}"#;
//! let recording: Recording = serde_json::from_str(text)?;
//! assert!(ReplayTimer::new(recording.clone()).is_ok());
//! let mut newer = recording;
//! newer.schema = 2;
//! assert!(ReplayTimer::new(newer).unwrap_err().message.starts_with("a recording of schema 2, 1 is needed"));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod calls;
mod index;
mod json_file;
mod keep;
mod profiles;
mod recording;

pub use calls::{RecordedFailure, RecordedMethod};
pub use index::{FunctionConfigs, IndexedInvocation, ProfileIndex, TakenProfile, TakenRound};
pub use keep::ReplayKeeper;
pub use profiles::ProfileReplay;
pub use recording::{RecordedCandidate, RecordedInvocation, RecordedOutput, Recording, ReplayTimer};
