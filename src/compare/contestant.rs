//! What is compared, and how much is measured for it.

use std::path::Path;
use std::time::Duration;

use crate::decision::ComparisonRules;
use crate::measure::{InputOptions, MeasureError, MeasuredProgram};
use crate::measured_by::CacheState;
use crate::setters::setters;
use crate::timer::Build;

/// A program, how it is compiled, and which timer runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contestant {
    /// What it is called: the file as the user named it.
    pub name: String,
    /// The program.
    pub program: MeasuredProgram,
    /// How it is compiled.
    pub build: Build,
    /// Which of several timers runs it, as [`SideBySide`](crate::timer::SideBySide) numbers them; 0 if there is one.
    pub timer: usize,
}

setters!(Contestant { build: Build, timer: usize });

impl Contestant {
    /// A program, compiled as the first timer does by itself.
    pub fn new(name: impl Into<String>, program: MeasuredProgram) -> Self {
        Self { name: name.into(), program, build: Build::default(), timer: 0 }
    }

    /// A file of the user's.
    ///
    /// # Errors
    /// If it cannot be read or is not a program that a plugin compiles.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        Ok(Self::new(path.display().to_string(), MeasuredProgram::open(path)?))
    }
}

/// How much is measured, and when a difference is one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CompareOptions {
    /// Exactly so many rounds that count; `None` measures until each contestant is distinguished from the first.
    pub rounds: Option<u32>,
    /// Time for the rounds. Without it a comparison that is not settled ends after some seconds of the programs' own time.
    pub budget: Option<Duration>,
    /// When a contestant is distinguished from the first.
    pub rules: ComparisonRules,
    /// Whether the first contestant is compiled and loaded once more, to see what noise alone makes.
    pub with_copy: bool,
    /// How the inputs are made.
    pub inputs: InputOptions,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
    /// Measure again what the sample log holds.
    pub force: bool,
    /// Seed of the order inside a round.
    pub seed: u64,
    /// Which of several comparisons of the same programs it is: samples of one are never taken for those of another.
    pub stage: String,
    /// Whether to tell what the inputs and outputs need before anything is measured.
    pub tells_preflight: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            rounds: None,
            budget: None,
            rules: ComparisonRules::default(),
            with_copy: true,
            inputs: InputOptions::default(),
            cache_state: CacheState::Warm,
            force: false,
            seed: 0,
            stage: "compare".to_owned(),
            tells_preflight: true,
        }
    }
}

setters!(CompareOptions {
    rounds: Option<u32>,
    budget: Option<Duration>,
    rules: ComparisonRules,
    with_copy: bool,
    inputs: InputOptions,
    cache_state: CacheState,
    force: bool,
    seed: u64,
    stage: String,
    tells_preflight: bool,
});
