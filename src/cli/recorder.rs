//! `--recorder`: who lowers candidates when they are needed.

use std::num::NonZeroUsize;

use clap::Args;

use crate::lowering::Lowering;
use crate::timer::{Recorders, WorkerLimits};

use super::fault::Fault;
use super::options::LimitArgs;
use super::timers::this_program;

/// Most recorders by default: each holds a whole program of the user.
const MOST: usize = 8;

#[derive(Debug, Clone, Default, Args)]
pub(super) struct RecorderArg {
    /// Command that recorded on demand, such as `python serve.py`. It is run again and lowers candidates when they are
    /// needed, several at once, each in a process of its own (docs/recording.md)
    #[arg(long, value_name = "COMMAND")]
    pub recorder: Option<String>,
}

impl RecorderArg {
    /// The recorders, none of which is started yet.
    pub(super) fn lowering(&self, limits: &LimitArgs) -> Result<Option<Lowering>, Fault> {
        let Some(command) = &self.recorder else { return Ok(None) };
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST);
        let most = NonZeroUsize::new(limits.compile_jobs.map_or(cores, usize::from)).unwrap_or(NonZeroUsize::MIN);
        let recorders = Recorders::new(&this_program()?, command, most, WorkerLimits::from(limits));
        Ok(Some(Lowering::new(recorders)))
    }
}
