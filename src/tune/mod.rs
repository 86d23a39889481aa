//! The tuning run: plan, compile, measure in rounds, decide, commit.
//!
//! [`plan()`] matches a module's labels with the recordings, and a [`Session`] runs the plan, one invocation at a time
//! on each device. Each invocation becomes a job ([`crate::timer::Job`]) whose digest says which samples are
//! comparable. Rounds of that job that the sample log already holds are not measured again. If there are too many
//! configs to race, a search picks which ones to race; each config it tries is a job of two, beside the baseline. A run
//! emits [events](crate::timer::events) and returns an [`AutotuningResult`]. [`Autotune`](crate::autotune::Autotune) is
//! all of it in one call.
//!
//! ```
//! use autotune_lowered::hlo::{ScanOptions, scan_path};
//! use autotune_lowered::ledger::Ledger;
//! use autotune_lowered::registry::Registry;
//! use autotune_lowered::timer::{ReplayTimer, Timer};
//! use autotune_lowered::tune::{PlanOptions, Session, plan};
//!
//! let scan = scan_path("examples/transformer/module.hlo.txt", &ScanOptions::default())?;
//! let registry = Registry::open("examples/transformer/registry")?;
//! // on a device: `timer::pjrt::PjrtTimer`
//! let mut timer = ReplayTimer::open("examples/transformer/simulated.json".as_ref())?;
//! let plan = plan(&scan, &registry, &timer.info().device.identity, &PlanOptions::default())?;
//! // to keep what is decided: `Ledger::open`
//! let ledger = Ledger::in_memory(Vec::new());
//! let result = Session::new(&registry, &ledger, &mut timer).run(&plan)?;
//! for operation in &result.operations {
//!     let best = operation.best.as_ref().map(|best| best.config.to_brief());
//!     println!("{}: {}, use {best:?}", operation.call, operation.status.name());
//! }
//! # assert_eq!(result.operations.len(), 4);
//! # assert!(result.operations.iter().all(|operation| operation.speed_up.is_some_and(|times| times > 1.9)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choices;
mod commit;
mod confirming;
mod devices;
mod distributions;
mod groups;
mod job;
mod more_time;
mod options;
mod pair;
mod plan;
mod planned;
mod provisional;
mod remeasurement;
mod result;
mod run;
mod searched;
mod searching;
mod session;
mod shard;
mod step;
mod stored_results;
mod time_breakdown;
mod tuner;
mod tuning;
mod waves;
mod work;

pub(crate) use choices::only;
pub(crate) use commit::fill_from_entry;
pub use groups::{NoGroups, SeveralHosts, WidestCall};
pub(crate) use job::{InputFolder, materialize};
pub use more_time::MoreTime;
pub use options::{SearchOptions, TuneOptions};
pub use plan::{NoSuchCall, PlanOptions, TuningPlan, plan, whole_registry};
pub use planned::{MAX_RACED, PlannedInvocation};
pub(crate) use provisional::{not_confirmed, undecided};
pub use remeasurement::Remeasurement;
pub(crate) use result::ended_by_user;
pub use result::{
    AutotuningResult, ConfigTime, DistributionResult, MissedLabel, NoSuchResult, OperationResult, ProfiledStep,
    RESULT_SCHEMA, RivalResult, Status,
};
pub use run::without_calls;
pub use searched::{SearchEnd, Searched};
pub use session::{Session, Stopped};
pub use shard::{ParseShardError, Shard};
pub use step::StepProfile;
pub use stored_results::stored_results;
pub use time_breakdown::TimeBreakdown;
pub(crate) use time_breakdown::{Tally, rounds_measured, time_breakdown};
pub(crate) use waves::are_compiled_at_once;

pub use crate::race::{
    CandidateOutcome, CandidateRace, CandidateResult, CandidateStatus, CandidateTimes, OutputDifference, PairedSample,
    RaceStage, ReferenceError, SpecialValues, TuneError,
};
