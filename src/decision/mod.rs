//! Pure: paired samples in, the next action or a verdict out. Knows neither timers nor stores nor clocks.
//!
//! Every comparison is a ratio of two samples taken in one round by one worker process (an epoch), so that a machine's
//! drift and a process's luck cancel; the median of those ratios is the estimate. [`race`] says after each round which
//! candidates need no more of them and whether the rest is settled, [`judge`] draws the verdict. Both look as often as
//! they like: the evidence that they rest on ([`slower`]) holds over all looks.
//!
//! A call of better takes evidence, and a difference above the *resolution*: the least that the rounds can tell, or
//! what `autotune-lowered selftest` found programs to differ from themselves on this machine.

mod comparison;
mod evidence;
mod field;
mod judge;
mod look;
mod noise;
mod paired;
mod race;
mod resolution;
mod rules;
mod sentinel;
mod turns;
mod warm_up;

pub use comparison::{Compared, Comparison, ComparisonRules, Relation, compare};
pub use evidence::{anytime_interval, slower};
pub use judge::{CandidateVerdict, Judgement, Outcome, judge};
pub use look::{Look, Looks, first_looks};
pub use noise::Noise;
pub use paired::{Round, log_ratios, paired_ratios};
pub use race::{DropReason, Dropped, Settled, Standing, is_look, race};
pub use resolution::Resolution;
pub use rules::DecisionRules;
pub use sentinel::{Disturbance, disturbance, wants_bracket};
pub use warm_up::is_stationary;
