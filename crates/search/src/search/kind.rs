//! The strategies by name.

/// Which strategy to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrategyKind {
    /// Chosen by the size of the space and the budget.
    #[default]
    Auto,
    /// Bayesian optimisation with a Gaussian process.
    Model,
    /// A random order.
    Random,
    /// The order of the space.
    Exhaustive,
}

impl StrategyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Model, Self::Random, Self::Exhaustive];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Model => "model",
            Self::Random => "random",
            Self::Exhaustive => "exhaustive",
        }
    }
}
