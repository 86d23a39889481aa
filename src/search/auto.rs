//! The default: what suits the size of the space and the budget.

use super::kind::Kind;
use super::strategy::Plan;

/// Up to so many configs there is nothing for a model to learn from.
const FEW: usize = 16;

/// Every config of a space of few, in its order; else the model, which suits any budget: its first questions are few, and
/// with a budget for the whole space it asks for the good ones first.
pub(super) fn choose(plan: &Plan<'_>) -> Kind {
    if plan.space.count() <= FEW { Kind::Exhaustive } else { Kind::Model }
}
