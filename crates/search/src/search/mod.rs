//! Which config to measure next: search strategies with `ask` and `tell`, pure and seeded.
//!
//! A [`Space`] numbers the valid configs. A [`SearchStrategy`], started from a [`Plan`] by [`start`], names a point and is
//! given the [`Outcome`]. It sees neither a timer nor a store, so the tuner, a simulation or a test can drive it. Its
//! questions follow from the plan and the outcomes so far, so replaying a history resumes a search. If all configs of a
//! call could be compiled, a [`Surrogate`] says which need not be.
//!
//! `benches/search` runs strategies on recorded spaces and scores them; `docs/search.md` has methods and figures.

mod budget;
mod columns;
mod draw;
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
pub use kind::Kind;
pub use large::{MAX_STEPS, SAMPLE};
pub use space::{MAX_POINTS, NoSpace, Parameter, Space};
pub use start::start;
pub use strategy::{MAX_PRIORS, Outcome, Plan, SearchStrategy};
pub use surrogate::{Expected, Predictions, Surrogate, WaveRules};
