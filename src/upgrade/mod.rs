//! Whether cached configs still hold with another compiler: each call's config in force runs under the old compiler and
//! under the new one, in pairs of fresh processes, beside the best config that the new one has.
//!
//! [`upgrade()`] first tunes the calls under the new compiler. Then it measures, for each call, the config in force
//! under both, the baseline under both, and the best new config, and [`judge`] says what that means: the config
//! [holds, or another one is better now, or the compiler is slower](UpgradeVerdict). The pair of processes is the unit
//! of evidence, as for a winner that is [confirmed](crate::decision::ProcessQuestion).
//!
//! A difference between two compilers is one between two pairs of processes, and a process differs from the next one by
//! some per cent. So a verdict has a least difference that matters, and below it a config holds.
//!
//! [`Bisection`] says of a list of environments at which one a verdict changes first. It compares the last one with the
//! first, and then the middle of what is left for each call that changed.

mod bisect;
mod blocks;
mod change;
mod compilers;
mod halving;
mod junit;
mod old_and_new;
mod result;
mod run;
mod turns;
mod verdict;

pub use bisect::{
    BISECT_SCHEMA, BisectOutcome, BisectResult, BisectedCall, Bisection, ComparedCall, EnvironmentComparison,
};
pub use change::{Change, Shift};
pub use compilers::Compilers;
pub use junit::write_junit;
pub use result::{
    BestConfig, ChangeCause, CompilerSide, InForce, TunedUnderNew, UPGRADE_SCHEMA, UpgradeResult, UpgradeVerdict,
    UpgradedCall,
};
pub use run::{RecordedCalls, Upgrade, UpgradeOptions, upgrade};
pub use verdict::judge;
