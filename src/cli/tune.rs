//! The main job: tunes a module and prints the best configs.

use std::borrow::Cow;
use std::io::Write;

use indicatif::MultiProgress;

use super::exit;
use super::fault::Fault;
use super::from_upgrade::calls_to_tune_again;
use super::no_labels::without_labels;
use super::say::say;
use super::tune_args::TuneArgs;
use super::tune_run::OpenRun;

/// Tunes a module and prints the result.
pub(super) fn run(args: &TuneArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let Some(args) = args.of_upgrade()? else {
        say("nothing to tune again: each config holds");
        return Ok(exit::ALL_TUNED);
    };
    let args = &*args;
    let mut run = match OpenRun::open(args)? {
        Ok(run) => run,
        Err(scan) => return without_labels(args, &scan, out),
    };
    let outcome = run.tune(bars);
    run.write(outcome, out)
}

impl TuneArgs {
    /// The same for the calls alone that `--from` names, if it is given; `None` if it names none.
    fn of_upgrade(&self) -> Result<Option<Cow<'_, Self>>, Fault> {
        let Some(from) = &self.from else { return Ok(Some(Cow::Borrowed(self))) };
        let only = calls_to_tune_again(from)?;
        let mut narrowed = self.clone();
        (narrowed.plan.only, narrowed.force) = (only, true);
        let is_any = !narrowed.plan.only.is_empty();
        Ok(is_any.then_some(Cow::Owned(narrowed)))
    }
}
