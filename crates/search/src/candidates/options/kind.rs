//! The kinds of changes that options make, and which of them are tried.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an option may change besides the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OptionKind {
    /// No change of semantics. Results need not be bitwise equal, since sums may be taken in another order.
    Safe,
    /// Switches passes of the compiler off.
    Passes,
    /// Floating point arithmetic with fewer guarantees: of NaN, infinities, division, functions.
    FastMath,
    /// Other random bits.
    Rng,
    /// More memory, or less, rather than another time.
    Memory,
}

/// The scope of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionScope {
    /// One compilation.
    Compile,
    /// A process, before it loads the plugin: `XLA_FLAGS`, `LIBTPU_INIT_ARGS`.
    Process,
}

/// Which kinds of options are tried; each class has those of the one before. Options that change random bits or memory
/// are in none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OptionClass {
    /// Semantics stay.
    Safe,
    /// Passes may also be off.
    Passes,
    /// Arithmetic may also have fewer guarantees.
    FastMath,
}

impl OptionKind {
    /// Its name in files and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Passes => "passes",
            Self::FastMath => "fast-math",
            Self::Rng => "rng",
            Self::Memory => "memory",
        }
    }
}

impl OptionScope {
    /// Its name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Process => "process",
        }
    }
}

impl OptionClass {
    /// All classes, each within the next.
    pub const ALL: [Self; 3] = [Self::Safe, Self::Passes, Self::FastMath];

    /// Its name in commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Passes => "passes",
            Self::FastMath => "fast-math",
        }
    }

    /// Whether options of this kind are tried.
    pub fn includes(self, kind: OptionKind) -> bool {
        match kind {
            OptionKind::Safe => true,
            OptionKind::Passes => self >= Self::Passes,
            OptionKind::FastMath => self >= Self::FastMath,
            OptionKind::Rng | OptionKind::Memory => false,
        }
    }
}

impl fmt::Display for OptionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
