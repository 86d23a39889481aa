//! Pure: paired samples in, the next action or a verdict out. It uses neither timers nor stores nor clocks.
//!
//! Every comparison is a ratio of two samples taken in one round by one worker process (an epoch), so that a machine's
//! drift and a process's luck cancel; the median of those ratios is the estimate. After each round [`race`] says which
//! candidates need no more rounds and whether the race is decided; [`judge`] gives the verdict. Both may look at any
//! time, because their evidence ([`slower`]) holds over all looks.
//!
//! A candidate is called better only with evidence, and if the difference is above the *resolution*, the noise floor:
//! the smallest difference that the rounds can detect, or the one that `autotune-lowered selftest` found on this
//! machine.
//!
//! ```
//! use autotune_lowered_search::decision::{DecisionRules, JudgedOutcome, Round, judge};
//!
//! // twenty rounds: candidate 1 takes nine tenths of the baseline's time, and 2 takes twice as long
//! let rounds: Vec<Round> = (0..20)
//!     .map(|round| 100.0 + f64::from(round % 3) / 10.0)
//!     .map(|drift| Round::new(0, vec![Some(drift), Some(0.9 * drift), Some(2.0 * drift)]))
//!     .collect();
//! let judgement = judge(&rounds, 3, &[0, 1, 2], 0, None, &[], &DecisionRules::default());
//! assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::Faster, 1));
//! assert_eq!(judgement.tie_set(), [1]);
//! ```

mod comparison;
mod evidence;
mod field;
mod finalists;
mod judge;
mod look;
mod noise;
mod paired;
mod process_ratio;
mod process_spread;
mod processes;
mod race;
mod resolution;
mod rules;
mod sentinel;
mod stability;
mod turns;
mod warm_up;

pub use comparison::{CandidateComparison, Compared, ComparisonRules, Relation, compare};
pub use evidence::{anytime_interval, slower};
pub use finalists::{Final, FinalVerdict, Finalist, finalists};
pub use judge::{CandidateVerdict, JudgedOutcome, Judgement, judge};
pub use look::{Looks, RatioLook, first_looks};
pub use noise::RoundNoise;
pub use paired::{Round, log_ratios, paired_ratios};
pub use process_ratio::{ProcessRatio, ProcessTime, process_ratios, process_times, quotients};
pub use process_spread::ProcessSpread;
pub use processes::{ProcessOutcome, ProcessQuestion, ProcessVerdict, most_evidence};
pub use race::{DropReason, Dropped, RaceState, Settled, counted_rounds, is_look, race};
pub use resolution::Resolution;
pub use rules::DecisionRules;
pub use sentinel::{Disturbance, disturbance, wants_bracket};
pub use stability::DecidedRace;
pub use warm_up::is_stationary;
