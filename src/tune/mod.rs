//! The walk itself: plan, compile, measure in rounds, decide, commit.
//!
//! [`Autotuner`] takes matched invocations one at a time. Each becomes a job ([`crate::timer::Job`]) whose digest says
//! which samples are comparable; rounds that the sample log already holds of that job are not measured again. Where there are
//! more configs than can be raced, a search finds those that are: each config it asks for is a job of two, beside the baseline. What
//! happens is told as [`Event`]s; what came of it is an [`AutotuningResult`].

mod again;
mod blame;
mod choices;
mod commit;
mod copies;
mod devices;
mod error;
mod event;
mod job;
mod measure;
mod options;
mod outputs;
mod pair;
mod plan;
mod possible;
mod result;
mod rounds;
mod run;
mod searched;
mod searching;
mod shard;
mod spent;
mod step;
mod stored_results;

pub use again::Again;
pub use copies::{Copies, CopiesError, measure_copies};
pub use devices::run_on_devices;
pub use error::TuneError;
pub use event::Event;
pub use options::{SearchOptions, TuneOptions};
pub use plan::{MAX_RACED, PlannedInvocation};
pub use result::{
    AutotuningResult, CandidateResult, CandidateStatus, ConfigTime, MissedLabel, OperationResult, PairedSample,
    RESULT_SCHEMA, Status,
};
pub use run::Autotuner;
pub use searched::{SearchEnd, Searched};
pub use shard::{ParseShardError, Shard};
pub use spent::Spent;
pub use step::{ProfiledStep, order_by_share};
pub use stored_results::stored_results;
