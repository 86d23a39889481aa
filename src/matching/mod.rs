//! Labels of a module to recorded invocations of a device, with the reason of each match and miss.
//!
//! An exact label is looked up by operation and call key, a recomputed one by the operation's name in any version and
//! call key. A key that names no `vmap` matches every recorded variant of its call, because ejkernel's keys name none.
//! A label that lost both matches every recorded call of its operation. If the module has the operands' shapes and is
//! not yet partitioned (its shapes are still those of the recording), only calls whose arguments all occur among the
//! operands of one call site match.

mod outcome;
mod resolve;
mod shapes;

pub use outcome::{ByName, MatchBasis, Matched, MatchedLabel, Matching, MissReason, Missed};
pub use resolve::{MAX_BY_NAME, match_labels};
pub use shapes::COTANGENT_PREFIX;
