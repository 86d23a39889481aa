//! The default: what suits the size of the space and the budget.

use super::kind::Kind;
use super::strategy::Plan;

/// Up to so many configs there is nothing for a model to learn from.
const FEW: usize = 16;

/// Every config in its order where the budget covers the space or there are few; else the model, which suits any smaller
/// budget: its first questions are few, and each later one is the best that it knows.
pub(super) fn choose(plan: &Plan<'_>) -> Kind {
    let count = plan.space.count();
    if count <= FEW || plan.budget.is_some_and(|budget| budget >= count) { Kind::Exhaustive } else { Kind::Model }
}
