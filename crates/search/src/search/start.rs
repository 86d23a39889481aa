//! The start of a strategy, and which one `auto` is.

use super::exhaustive::Exhaustive;
use super::kind::StrategyKind;
use super::model::Guided;
use super::priors::Primed;
use super::random::Random;
use super::strategy::{SearchStrategy, StrategyPlan};

/// Up to this many configs there is nothing for a model to learn from.
const FEW: usize = 16;

/// Starts a strategy. Every strategy asks for the best of the plan's priors first.
pub fn start<'a>(kind: StrategyKind, plan: &StrategyPlan<'a>) -> Box<dyn SearchStrategy + 'a> {
    let own: Box<dyn SearchStrategy + 'a> = match kind {
        StrategyKind::Auto => return start(choose(plan), plan),
        StrategyKind::Model => Box::new(Guided::new(plan)),
        StrategyKind::Random => Box::new(Random::new(plan)),
        StrategyKind::Exhaustive => Box::new(Exhaustive::new(plan)),
    };
    // the model asks for them itself, and learns from all
    if plan.priors.is_empty() || kind == StrategyKind::Model { own } else { Box::new(Primed::new(plan, own)) }
}

/// Every config in its order if the budget covers the space or there are few; otherwise the model, which suits any
/// smaller budget: its initial questions are few, and each later one is the most promising.
fn choose(plan: &StrategyPlan<'_>) -> StrategyKind {
    let count = plan.space.count();
    if count <= FEW || plan.budget.is_some_and(|budget| budget >= count) {
        StrategyKind::Exhaustive
    } else {
        StrategyKind::Model
    }
}
