//! The regression check: cached configs measured again beside their baselines.
//!
//! [`Gate`] looks up what is cached for each planned call, measures it again as the tuner measures, and says what became
//! of it ([`Verdict`]). It changes no cache: only samples are kept. [`look()`] is the pure part: rounds in, change and odds
//! out; `docs/fleet.md` says what the verdicts mean and how often an alarm is false. [`write_junit`] and
//! [`write_annotations`] tell the result to CI.

mod annotations;
mod check;
mod expected;
mod junit;
mod look;
mod result;

pub use annotations::write_annotations;
pub use check::Gate;
pub use junit::write_junit;
pub use look::{Change, Limits, Look, MIN_ROUNDS, look, margin};
pub use result::{CHECK_SCHEMA, CheckResult, CheckedEntry, OperationCheck, Verdict};
