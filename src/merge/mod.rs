//! Several caches to one: for each call the entry with the best evidence is in force, and the others' provenance is
//! kept with it.
//!
//! All *decisions* in a call's entries count, including superseded ones. The [`MAX_DECISIONS`] latest are kept, by
//! `decided_at`, then by their text. One of these is chosen, by the first of these rules that distinguishes two:
//!
//! 1. One of the *environment* (platform version, driver, plugin digest, XLA flags) of the latest decision.
//!    Measurements under other software are not evidence for today's, however many rounds they took.
//! 2. The better clock: `device-profile`, then `host-wall`, then any other.
//! 3. One of the same question (baseline with its program, metric, cache state) as the latest of the rest, because
//!    ratios to different baselines cannot be compared.
//! 4. The greater proven gain: the lower upper end of the ratio's interval.
//! 5. More rounds, then the narrower interval, then the later decision, then the text that sorts first.
//!
//! Any decision wins over an entry without provenance, which is then dropped, and a measured one over those of replayed
//! samples likewise. Of several without provenance, the one
//! with another tool's record wins, then the text that sorts first.
//!
//! The result depends only on the set of decisions, of which the latest few always stay. So a merge is associative,
//! commutative and idempotent, and a result under old software is never chosen over a present one.

mod claim;
mod merged;

pub use claim::MAX_DECISIONS;
pub use merged::{Merged, merge};
