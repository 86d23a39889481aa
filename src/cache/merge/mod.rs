//! Several caches to one: of each call's entries the one with the better evidence is in force, and the others' provenance is
//! kept with it.
//!
//! Of a call, all *decisions* count that the entries hold, those that they superseded too. The [`MAX_DECISIONS`] latest are
//! kept, by `decided_at`, then by their text. Of these one is chosen, by the first of these rules that tells two apart:
//!
//! 1. One of the *environment* (platform version, driver, plugin digest, XLA flags) of the latest decision. What was measured
//!    under other software is not evidence for today's, however many rounds it took.
//! 2. The better clock: `device-profile`, then `host-wall`, then any other.
//! 3. One of the same question (baseline with its program, metric, cache state) as the latest of those left, since
//!    ratios to different baselines cannot be compared.
//! 4. The greater proven gain: the lower upper end of the ratio's interval.
//! 5. More rounds, then the narrower interval, then the later decision, then the lesser text.
//!
//! An entry without provenance gives way to any decision and is not kept; of several such the one that another tool's file has
//! something to say of, then the lesser text.
//!
//! What is kept depends on nothing but the set of decisions, of which the latest few stay whatever comes first. So a merge is
//! associative, commutative and idempotent; and a result of software that is gone is chosen over a present one at no time.

mod claim;
mod merged;

pub use claim::MAX_DECISIONS;
pub use merged::{Merged, merge};
