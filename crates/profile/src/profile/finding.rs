//! Caveats of a profile: each finding is one way in which its numbers could mislead.

use serde::Serialize;

/// A caveat of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finding {
    /// The profiler lost events.
    #[error("the profiler dropped events: {message}; trace fewer launches at a time")]
    DroppedEvents {
        /// The profiler's message, or the stat that says so.
        message: String,
    },
    /// The profiler reported something else.
    #[error("the profiler says: {message}")]
    ProfilerMessage {
        /// Its message.
        message: String,
    },
    /// There is neither a device's plane nor a host plane with thunk events.
    #[error("no plane holds device work; planes: {planes}; trace while the device is in use")]
    NoDevicePlane {
        /// The existing planes.
        planes: String,
    },
    /// A device's plane holds no module execution.
    #[error("plane `{plane}` has {events} events, none of a module execution")]
    NoExecutions {
        /// The plane.
        plane: String,
        /// Its events.
        events: u64,
    },
    /// Events of a line start earlier than the one before them.
    #[error("the clock goes backwards {events} times in line `{line}` of plane `{plane}`")]
    ClockBackwards {
        /// The plane.
        plane: String,
        /// The line.
        line: String,
        /// Events that start before their predecessor.
        events: u64,
    },
    /// Bytes that are not an event; they are left out.
    #[error("{events} events of plane `{plane}` cannot be decoded and are left out")]
    MalformedEvents {
        /// The plane.
        plane: String,
        /// How many.
        events: u64,
    },
    /// Events or stats refer to metadata that the plane does not have.
    #[error("{references} references in plane `{plane}` lead to missing metadata")]
    UnknownMetadata {
        /// The plane.
        plane: String,
        /// How many.
        references: u64,
    },
    /// Durations below zero; those events are left out.
    #[error("{events} events of plane `{plane}` have a negative duration and are left out")]
    NegativeDurations {
        /// The plane.
        plane: String,
        /// How many.
        events: u64,
    },
    /// Times 26 days or more from the rest; those events are left out.
    #[error("{events} events of plane `{plane}` are 26 days or more from the rest and are left out")]
    TimeOutOfRange {
        /// The plane.
        plane: String,
        /// How many.
        events: u64,
    },
    /// Operations outside every module execution.
    #[error("{events} operations of plane `{plane}` are outside every module execution and count in no program")]
    OutsideModules {
        /// The plane.
        plane: String,
        /// How many.
        events: u64,
    },
    /// Operations of a SparseCore's plane, which count in the executions of its device.
    #[error("{events} operations of plane `{plane}` count in the executions of `{device}`, which ran them")]
    JoinedPlane {
        /// The SparseCore's plane.
        plane: String,
        /// The device's.
        device: String,
        /// How many.
        events: u64,
    },
    /// Module executions without any operation: their busy time is their span.
    #[error("{executions} executions of plane `{plane}` have no operations: their busy time is taken as their span")]
    NoOperations {
        /// The plane.
        plane: String,
        /// How many.
        executions: u64,
    },
    /// The events name no run; executions were distinguished where the first kernel comes again.
    #[error(
        "events of `{module}` name no run: {executions} executions separated at their first kernel; compare with \
         the launches"
    )]
    SplitByFirstOperation {
        /// The module.
        module: String,
        /// Executions found so.
        executions: u64,
    },
    /// An importer's warning on another tool's capture.
    #[error("{message}")]
    Imported {
        /// Its message.
        message: String,
    },
    /// A function of which only some profiles have samples.
    #[error("`jit_autotune_fn_{function}` has no sample in {profiles} of the profiles")]
    FunctionMissing {
        /// The function's id.
        function: u64,
        /// Profiles without a sample of it.
        profiles: u64,
    },
}
