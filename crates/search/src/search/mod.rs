//! Which config to measure next: search strategies with `ask` and `tell`, pure and seeded.
//!
//! A [`Space`] numbers the valid configs. A [`SearchStrategy`], started from a [`StrategyPlan`] by [`start`], names a
//! point and is given the [`TrialOutcome`]. It sees neither a timer nor a store, so the tuner, a simulation or a test
//! can drive it. Its questions follow from the plan and the outcomes so far, so replaying a history resumes a search.
//! If all configs of a call could be compiled, a [`Surrogate`] says which need not be.
//!
//! `benches/search` runs strategies on recorded spaces and scores them; `docs/search.md` has methods and figures.
//!
//! ```
//! use autotune_lowered_search::search::{StrategyKind, TrialOutcome, StrategyPlan, Space, start};
//!
//! let configs = (0..64).map(|n| serde_json::from_str(&format!(r#"{{"block": {}}}"#, 8 * (n + 1))));
//! let space = Space::new(configs.collect::<Result<Vec<_>, _>>()?)?;
//! // the best block is 256
//! let time = |point: usize| 1.0 + (point as f64 - 31.0).abs() / 64.0;
//! let mut search = start(StrategyKind::Model, &StrategyPlan::new(&space, 7));
//! let mut best = f64::INFINITY;
//! for _ in 0..16 {
//!     let point = search.ask().ok_or("configs are left")?;
//!     search.tell(point, TrialOutcome::of(time(point)));
//!     best = best.min(time(point));
//! }
//! assert!(best < 1.05, "found after a quarter of the configs: {best}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod columns;
mod exhaustive;
mod gaussian;
mod history;
mod kind;
mod large;
mod model;
mod priors;
mod random;
mod space;
mod start;
mod strategy;
mod surrogate;

pub use budget::{Budget, NoBudget};
pub use kind::StrategyKind;
pub use large::{MAX_STEPS, SAMPLE};
pub use space::{MAX_POINTS, NoSpace, Parameter, Space};
pub use start::start;
pub use strategy::{MAX_PRIORS, SearchStrategy, StrategyPlan, TrialOutcome};
pub use surrogate::{ExpectedRatio, Predictions, Surrogate, WaveRules};
