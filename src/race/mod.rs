//! One race engine: programs measured side by side in one process, until a question about them is answered.
//!
//! Tuning, `compare`, `prove`, the search for compiler options, `check` and `selftest` all race here, each on a
//! [`Runner`]: a timer, the sample log, and the user's wish to end.
//!
//! # What comes in, and what comes out
//!
//! A race takes a job ([`Job`](crate::timer::Job)), whose candidates it compiles and runs on the same inputs, a
//! [`RaceGoal`], [`RaceOptions`] with rules and a budget, and the samples that the log already holds. [`race_programs`]
//! does it for whole programs and returns [`Raced`]: every round, the verdict, and one row per candidate. `tune` does
//! the same for a recorded call, whose rounds it keeps across searches and waves of compilation.
//!
//! # Who does what
//!
//! Three parts each do one thing:
//!
//! - The *process* holds the timer: it starts the measuring process, and starts it again after a failure or for a fresh
//!   memory layout.
//! - The *evidence* is what is known of a job: rounds, grouped by the process that took them, and failures. The log
//!   gives its beginning, and every new round goes to the log before anyone looks at it.
//! - The *referee* looks at the evidence alone: who still competes, whether the question is answered, and the verdict.
//!
//! All rounds of one process share the effect of its memory layout. Ratios are therefore formed within a round, no
//! round mixes processes, and the number of a process (its epoch) grows with each start, over all runs that the log
//! holds. Who needs several processes starts a fresh one and races again on the same evidence.
//!
//! # A round
//!
//! A round measures each competing candidate once, in a new random order, beside the baseline. If the machine is
//! disturbed, the baseline is also at the round's ends. A sample is the shortest of a few runs; for programs too fast
//! for the clock, of batches of runs. A candidate that fails has a second chance in a fresh process and is dropped if
//! it fails again. The log gets each round as it ends, so that a killed run continues from there.
//!
//! Before its first round a candidate is compiled, its outputs are compared with the baseline's, and it is warmed up.

mod blame;
mod block;
mod candidate_result;
mod confirming;
mod contention;
mod device_slots;
mod differing;
mod error;
mod evidence;
mod expected;
mod identity;
mod in_f64;
mod judging;
mod measuring;
mod options;
mod other_inputs;
mod outputs;
mod preparing;
mod process;
mod program_race;
mod referee;
mod round;
mod rounds;
mod rows;
mod runner;
mod sampling;
mod stalls;
mod tolerances;
mod warming;

pub(crate) use blame::BASELINE_FAILED;
pub(crate) use block::{BlockRace, BlockTimes};
pub use candidate_result::{
    CandidateOutcome, CandidateRace, CandidateResult, CandidateStatus, CandidateTimes, OutputDifference, PairedSample,
    RaceStage, ReferenceError, SpecialValues,
};
pub use confirming::Confirmation;
pub(crate) use confirming::{confirm_once, spreads};
pub use contention::{LoadPolicy, QuietWait};
pub(crate) use device_slots::{DeviceSlot, DeviceSlots};
pub use error::{RaceError, TuneError};
pub(crate) use evidence::JobEvidence;
pub(crate) use expected::LARGE_OUTPUTS;
pub(crate) use identity::{JobIdentity, NotLowered};
pub(crate) use in_f64::{check_same_shapes, check_size, error_from, outputs_in_f64};
pub(crate) use measuring::{Compiling, NextWave, measure};
pub use options::RaceOptions;
pub(crate) use options::{Deadline, LEAST_PROCESSES};
pub(crate) use program_race::confirm_programs;
pub use program_race::{ProgramRace, Raced, race_programs};
pub use referee::RaceGoal;
pub(crate) use referee::Referee;
pub(crate) use referee::Terms;
pub(crate) use rows::candidate_results;
pub use runner::Runner;
pub(crate) use runner::{no_signature, preflight};
pub use tolerances::OutputTolerances;
