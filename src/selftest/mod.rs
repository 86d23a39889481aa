//! A/A calibration, a program against itself: how often the tuner would call a copy better, and the noise floor.
//!
//! [`selftest`] loads one program several times and measures the copies as the tuner measures candidates, in all
//! rounds. [`Figures`] are what those rounds show about the machine, and [`StoredFigures`] keeps them in a cache
//! folder, by device, software, timer and metric. The tuner takes the resolution from there
//! ([`crate::decision::Resolution`]).

mod figures;
mod program;
mod run;
mod store;

pub use figures::{FalseWins, Figures};
pub use program::SelftestProgram;
pub use run::{SelftestError, SelftestOptions, selftest};
pub use store::{FigureKey, KnownNoise, Point, SELFTEST_FILE, StoredFigures};
