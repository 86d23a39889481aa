//! The profiles of a run that are kept.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;

use crate::io_hint::io_hint;
use crate::measured_by::Source;
use crate::timer::events::Sink;
use crate::timer::{LogKeeper, ReplayKeeper, Timer};

use super::fault::Fault;
use super::say::say;

/// Which profiles are kept, and where.
#[derive(Debug, Clone, Args)]
pub(super) struct KeepArgs {
    /// Keep the profile of every round in this folder, from which `--timer replay:DIR` can decide again
    #[arg(long, value_name = "DIR")]
    pub keep_profiles: Option<PathBuf>,
    /// Keep only the profiles of the first candidate that runs and of every N-th after it, as runs of a log folder for
    /// viewing (docs/profiles.md); they cannot be replayed
    #[arg(long, value_name = "N", requires = "keep_profiles", value_parser = clap::value_parser!(u64).range(1..))]
    pub profile_every: Option<u64>,
    /// Maximum number of these to keep, the newest ones
    #[arg(long, value_name = "K", requires = "profile_every", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub profiles_kept: u32,
}

impl KeepArgs {
    /// The keeper of a timer's profiles, if requested and if the timer takes profiles.
    pub(super) fn keeper(&self, timer: &dyn Timer, dry_run: bool) -> Result<Option<Arc<Mutex<dyn Sink>>>, Fault> {
        let Some(folder) = &self.keep_profiles else { return Ok(None) };
        if dry_run {
            return Ok(None);
        }
        if timer.info().source != Source::DeviceProfile {
            // the measurements are worth more than their profiles
            let folder = folder.display();
            say(&format!(
                "no profile is kept in `{folder}`, because the timer `{}` takes none here",
                timer.info().name
            ));
            return Ok(None);
        }
        if let Some(every) = self.profile_every {
            let keeper = LogKeeper::new(folder, every, self.profiles_kept as usize).map_err(|error| {
                Fault::input(format!("cannot keep profiles in `{}`: {error}{}", folder.display(), io_hint(&error)))
            })?;
            return Ok(Some(Arc::new(Mutex::new(keeper))));
        }
        let keeper = ReplayKeeper::new(timer, folder).map_err(|failure| Fault::input(failure.message))?;
        Ok(Some(Arc::new(Mutex::new(keeper))))
    }
}
