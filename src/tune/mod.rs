//! The tuning run: plan, compile, measure in rounds, decide, commit.
//!
//! [`plan()`] matches a module's labels with the recordings, and a [`Session`] runs the plan, one invocation at a time
//! on each device. Each invocation becomes a job ([`crate::timer::Job`]) whose digest says which samples are
//! comparable. Rounds of that job that the sample log already holds are not measured again. If there are too many
//! configs to race, a search picks which ones to race; each config it tries is a job of two, beside the baseline. A run
//! emits [events](crate::timer::events) and returns an [`AutotuningResult`].

mod again;
mod blame;
mod candidate_result;
mod choices;
mod commit;
mod copies;
mod devices;
mod error;
mod expected;
mod goodness;
mod groups;
mod job;
mod measure;
mod more_time;
mod not_lowered;
mod options;
mod outputs;
mod pair;
mod plan;
mod planned;
mod possible;
mod program_race;
mod quiet;
mod result;
mod rounds;
mod run;
mod sampling;
mod searched;
mod searching;
mod session;
mod shard;
mod spent;
mod step;
mod stored_results;
mod tuner;
mod warming;
mod waves;

pub use again::Again;
pub(crate) use blame::BASELINE_FAILED;
pub use candidate_result::{
    CandidateOutcome, CandidateResult, CandidateStatus, CandidateTimes, OutputDifference, PairedSample, ReferenceError,
    SpecialValues,
};
pub(crate) use commit::fill_from_entry;
pub(crate) use copies::ALL_ROUNDS;
pub use copies::{Copies, CopiesError, measure_copies};
pub use error::TuneError;
pub use groups::{NoGroups, SeveralHosts, Widest};
pub use more_time::MoreTime;
pub use options::{SearchOptions, TuneOptions};
pub(crate) use outputs::LARGE_OUTPUTS;
pub use plan::{NoSuchCall, Plan, PlanOptions, plan};
pub use planned::{MAX_RACED, PlannedInvocation};
pub use program_race::{Asks, ProgramRace, Raced, race_programs};
pub use result::{AutotuningResult, ConfigTime, MissedLabel, OperationResult, ProfiledStep, RESULT_SCHEMA, Status};
pub use searched::{SearchEnd, Searched};
pub use session::{Session, Stopped};
pub use shard::{ParseShardError, Shard};
pub use spent::Spent;
pub(crate) use spent::{Tally, spent};
pub use step::StepProfile;
pub use stored_results::stored_results;
