//! The cache checked: whether its entries still hold, which calls it covers, and which entries to remove.
//!
//! [`check()`] looks up the cached config of each planned call, measures it again as the tuner measures, and returns a
//! [`CheckVerdict`]. It changes no cache: only samples are kept. [`look()`] is the pure part: rounds in, change and
//! e-value out. `docs/fleet.md` says what the verdicts mean and how often an alarm is false. [`write_junit`] and
//! [`write_annotations`] report the result to CI.
//!
//! [`check_compiler_options`] does the same with the compiler options of the module itself.
//!
//! [`CoverageOf`] says which calls of a module have a config, and [`to_prune`] which entries are too old or stale.

mod annotations;
mod check;
mod check_options;
mod coverage;
mod expected;
mod junit;
mod look;
mod prune;
mod result;
mod series;

pub use annotations::write_annotations;
pub use check::{CheckOptions, check, without_calls};
pub use check_options::{CheckedModule, check_compiler_options};
pub use coverage::{Coverage, CoverageOf, DeviceNameError, LabelledCall, device_named, has_compiler_options};
pub use junit::write_junit;
pub use look::{EvidenceLook, Limits, MIN_ROUNDS, RatioChange, look, margin};
pub use prune::{PruneOptions, Pruned, prune, to_prune};
pub use result::{CHECK_SCHEMA, CheckResult, CheckVerdict, CheckedEntry, OperationCheck};
