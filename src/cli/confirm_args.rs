//! How winners are confirmed, and what is done about other processes.

use std::time::Duration;

use clap::Args;

use crate::race::{LEAST_PROCESSES, LoadPolicy, QuietWait, RaceOptions};

use super::options::time_or_none;

/// The variable that is a user's `--ignore-load`.
const IGNORE_LOAD: &str = "AUTOTUNE_LOWERED_IGNORE_LOAD";

const MOST_PROCESSES: u32 = 1000;

/// How winners are confirmed.
#[derive(Debug, Clone, Args)]
pub(super) struct ConfirmArgs {
    /// Fresh processes that may confirm a winner, half as many again on a busy machine: three are needed at least. With
    /// 0, what one process chose is cached, unconfirmed
    #[arg(long, value_name = "N", default_value_t = RaceOptions::default().processes, value_parser = processes)]
    pub(super) processes: u32,
    /// Measure for the load that there is: other processes on the cores or the GPU are not waited for
    #[arg(long)]
    pub(super) under_load: bool,
    /// Do not look whether other processes use the cores or the GPU; likewise if the variable AUTOTUNE_LOWERED_IGNORE_LOAD is set
    #[arg(long, conflicts_with = "under_load")]
    pub(super) ignore_load: bool,
    /// How long a run may wait, in all, for other processes to leave: seconds, or such as `5m`; 0 for not at
    /// all
    #[arg(long, value_name = "TIME", default_value = "20", value_parser = time_or_none)]
    pub(super) wait_for_quiet: Duration,
}

fn processes(text: &str) -> Result<u32, String> {
    let is_possible = |number: &u32| *number == 0 || (LEAST_PROCESSES..=MOST_PROCESSES).contains(number);
    text.parse().ok().filter(is_possible).ok_or_else(|| format!("expected 0, or {LEAST_PROCESSES} to {MOST_PROCESSES}"))
}

impl ConfirmArgs {
    /// The same race with these settings.
    pub(super) fn apply(&self, race: RaceOptions) -> RaceOptions {
        let ignores = std::env::var_os(IGNORE_LOAD).is_some_and(|value| !value.is_empty());
        let load = match (self.under_load, self.ignore_load || ignores) {
            (true, _) => LoadPolicy::UnderLoad,
            (_, true) => LoadPolicy::Ignore,
            _ => LoadPolicy::Wait,
        };
        race.processes(self.processes).load(load).quiet(QuietWait::new(self.wait_for_quiet))
    }
}
