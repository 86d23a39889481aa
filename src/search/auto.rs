//! The default: what suits the size of the space and the budget.

use super::kind::Kind;
use super::strategy::Plan;

/// Up to so many configs there is nothing for a model to learn from.
const FEW: usize = 16;

/// All of a space that is small or within the budget, in an order that the model leads where there is one; else the model.
pub(super) fn choose(plan: &Plan<'_>) -> Kind {
    if plan.space.count() <= FEW { Kind::Exhaustive } else { Kind::Model }
}
