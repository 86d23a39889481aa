//! The strategies by name.

use super::auto;
use super::exhaustive::Exhaustive;
use super::genetic::Genetic;
use super::halving::Halving;
use super::model::Guided;
use super::priors::Primed;
use super::random::Random;
use super::strategy::{Plan, SearchStrategy};

/// Which strategy to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The one that suits the size of the space and the budget.
    #[default]
    Auto,
    /// A Gaussian process says where the next best is to be expected.
    Model,
    /// Children of the better configs.
    Genetic,
    /// Many configs once, the better half again, and so on.
    Halving,
    /// An order of chance.
    Random,
    /// The order of the space.
    Exhaustive,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Auto, Self::Model, Self::Genetic, Self::Halving, Self::Random, Self::Exhaustive];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Model => "model",
            Self::Genetic => "genetic",
            Self::Halving => "halving",
            Self::Random => "random",
            Self::Exhaustive => "exhaustive",
        }
    }
}

/// Starts a strategy. Whatever it is, the best of the plan's priors are asked first.
pub fn start<'a>(kind: Kind, plan: &Plan<'a>) -> Box<dyn SearchStrategy + 'a> {
    let own: Box<dyn SearchStrategy + 'a> = match kind {
        Kind::Auto => return start(auto::choose(plan), plan),
        Kind::Model => Box::new(Guided::new(plan)),
        Kind::Genetic => Box::new(Genetic::new(plan)),
        Kind::Halving => Box::new(Halving::new(plan)),
        Kind::Random => Box::new(Random::new(plan)),
        Kind::Exhaustive => Box::new(Exhaustive::new(plan)),
    };
    // the model asks for them itself, and learns from all
    if plan.priors.is_empty() || kind == Kind::Model { own } else { Box::new(Primed::new(plan, own)) }
}
