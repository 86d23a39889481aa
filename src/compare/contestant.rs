//! The compared programs, and the amount of measurement.

use std::path::Path;
use std::time::Duration;

use crate::decision::ComparisonRules;
use crate::measure::{InputOptions, MeasureError, MeasuredProgram};
use crate::measured_by::CacheState;
use crate::race::{OutputTolerances, RaceOptions};
use crate::setters;
use crate::timer::Build;

/// A program, how it is compiled, and which timer runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contestant {
    /// Its name: the file as the user named it.
    pub name: String,
    /// The program.
    pub program: MeasuredProgram,
    /// How it is compiled.
    pub build: Build,
    /// The number of its timer in [`SideBySide`](crate::timer::SideBySide); 0 if there is only one.
    pub timer: usize,
}

setters!(Contestant { build: Build, timer: usize });

impl Contestant {
    /// A program with the first timer's default options.
    pub fn new(name: impl Into<String>, program: MeasuredProgram) -> Self {
        Self { name: name.into(), program, build: Build::default(), timer: 0 }
    }

    /// A file of the user.
    ///
    /// # Errors
    /// If it cannot be read or is not a program that a plugin compiles.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        Ok(Self::new(path.display().to_string(), MeasuredProgram::open(path)?))
    }
}

/// How much is measured, and when a difference is significant.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// How much is measured. With `rounds`, exactly so many count; without, each contestant is measured until it is
    /// distinguished from the first, or for `budget`, or for some seconds of the programs' own time.
    pub race: RaceOptions,
    /// When a contestant is distinguished from the first.
    pub rules: ComparisonRules,
    /// Whether the first contestant is compiled and loaded once more, to measure the effect of noise alone.
    pub with_copy: bool,
    /// The copy's timer, as a contestant's.
    pub copy_timer: usize,
    /// How the inputs are made.
    pub inputs: InputOptions,
    /// Identifies one of several comparisons of the same programs, whose samples are never mixed.
    pub stage: String,
    /// Whether to report what the inputs and outputs need before anything is measured.
    pub tells_preflight: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            race: RaceOptions::default(),
            rules: ComparisonRules::default(),
            with_copy: true,
            copy_timer: 0,
            inputs: InputOptions::default(),
            stage: "compare".to_owned(),
            tells_preflight: true,
        }
    }
}

setters!(CompareOptions.race {
    rounds: Option<u32>,
    budget: Option<Duration>,
    cache_state: CacheState,
    force: bool,
    seed: u64,
    tolerances: OutputTolerances,
});

setters!(CompareOptions {
    race: RaceOptions,
    rules: ComparisonRules,
    with_copy: bool,
    copy_timer: usize,
    inputs: InputOptions,
    stage: String,
    tells_preflight: bool,
});
