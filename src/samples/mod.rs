//! The sample log: framed, checksummed, append-only; the record of truth.
//!
//! One file, `samples-v1.log`. Each frame is one line of text:
//!
//! ```text
//! ATL1 0000002f 9a3b11c4 {"record":"log","schema":1,…}\n
//! ```
//!
//! `ATL1`, the length of the JSON in bytes and its CRC-32 (IEEE), both as eight lower-case hexadecimal digits, the
//! JSON without any line feed, a line feed. A frame is written by one `write` call. Nothing is ever changed or cut in
//! place: an incomplete last line stays, and the next writer starts a new one. A reader that meets a damaged frame
//! counts it, reports its position, and continues at the next line. A log that consists half of superseded jobs is
//! [compacted](SampleLog::compact): rewritten without them, and renamed into place.
//!
//! The first frame of a file is a [`LogRecord::Log`] with the schema; a file of a newer schema is refused by name.

mod compact;
mod error;
mod frame;
mod log;
mod record;
mod replay;

pub use error::LogError;
pub use frame::{Damage, MAX_FRAME_BYTES};
pub use log::{LoggedDecision, SampleLog};
pub use record::{
    CandidateRecord, CandidateSamples, FailureRecord, JobRecord, LogRecord, ProgramFigures, RoundRecord, SCHEMA,
};
pub use replay::{JobHistory, Replay};
