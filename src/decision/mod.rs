//! Pure: paired samples in, verdict out. Knows neither timers nor stores nor clocks.
//!
//! Every comparison is a ratio of two samples taken in one round by one worker process (an epoch), so that a machine's
//! drift and a process's luck cancel. The median of those ratios decides, with a distribution-free interval
//! ([`crate::stats::median_interval`]).
//!
//! The intervals are not widened for the number of candidates: among many equal ones the best looks a little better
//! than it is. The minimum improvement stands against that.

mod judge;
mod paired;

pub use judge::{CandidateVerdict, DecisionRules, Judgement, Outcome, judge};
pub use paired::{Round, paired_ratios};
