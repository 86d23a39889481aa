//! The strategies by name.

/// Which strategy to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Kind {
    /// The one that suits the size of the space and the budget.
    #[default]
    Auto,
    /// A Gaussian process says where the next best is to be expected.
    Model,
    /// A random order.
    Random,
    /// The order of the space.
    Exhaustive,
}

impl Kind {
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
