//! What happens during a run, for whoever draws it.

use crate::config::Config;
use crate::failure::Failure;

use super::OperationResult;

/// One step of the walk.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An invocation begins.
    Started {
        /// Which one, from zero.
        index: usize,
        /// Of how many.
        of: usize,
        /// `op@vN:key`.
        name: String,
        /// Candidates with programs of their own.
        programs: usize,
        /// Rounds that the sample log already holds.
        rounds_kept: u32,
    },
    /// A search for the configs to race begins.
    Searching {
        /// Which invocation, from zero.
        index: usize,
        /// Of how many.
        of: usize,
        /// `op@vN:key`.
        name: String,
        /// Configs to choose from.
        configs: usize,
        /// Whether these are a sample of more.
        sampled: bool,
    },
    /// A config was tried, or known from before.
    Evaluated {
        /// How many were.
        done: usize,
        /// How many will be, as far as that is known.
        of: Option<usize>,
        /// The best ratio to the baseline so far.
        best: Option<f64>,
    },
    /// A candidate's executable is ready.
    Prepared {
        /// Its config.
        config: &'a Config,
        /// Candidates done, failed ones too.
        done: usize,
        /// Candidates in all.
        of: usize,
        /// Whether it was compiled earlier.
        reused: bool,
    },
    /// A candidate is out.
    Failed {
        /// Its config.
        config: &'a Config,
        /// Why.
        failure: &'a Failure,
    },
    /// The worker was started again.
    Restarted {
        /// Why.
        reason: &'a Failure,
    },
    /// A round is measured and in the sample log.
    Round {
        /// Rounds done.
        done: u32,
        /// The rounds asked for; a race that is not settled by then may go on.
        of: u32,
        /// Candidates that were measured in it.
        contenders: usize,
    },
    /// An invocation ended.
    Finished(&'a OperationResult),
    /// Something to know.
    Note(String),
}
