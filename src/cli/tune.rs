//! The main job: tunes a module and prints the best configs.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use indicatif::MultiProgress;

use crate::hlo::Scan;
use crate::printable::printable;

use super::exit;
use super::fault::Fault;
use super::from_upgrade::calls_to_tune_again;
use super::profile;
use super::say::say;
use super::scan::{nothing_matched, user_labels};
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

/// Says that a module holds nothing to tune, and what to do.
fn without_labels(args: &TuneArgs, scan: &Scan, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.report.is_some() {
        say("no report is written: the module holds no label");
    }
    say(&no_label_line(args, &args.module));
    nothing_matched(scan, &args.format, out)
}

/// One line of advice for a module without labels; for a profiled step, also where its time goes.
fn no_label_line(args: &TuneArgs, module: &Path) -> String {
    const MOST_LINES: usize = 3;
    let labels = user_labels(&args.plan.labels).ok().flatten();
    // an unreadable profile is no reason to withhold advice on the module
    let step = args.profile.as_deref().and_then(|profile| profile::read_step(profile, &args.hlo, labels.as_ref()).ok());
    let lines = step.iter().flat_map(|step| step.own_sources()).take(MOST_LINES);
    let lines: Vec<String> =
        lines.map(|(line, share)| format!("`{}` ({:.0} % of the step)", printable(line), 100.0 * share)).collect();
    let of_lines = match lines.is_empty() {
        true => "on your function".to_owned(),
        false => format!("on the functions at {}", lines.join(", ")),
    };
    let module = if module == Path::new("-") { "MODULE".to_owned() } else { printable(&module.display().to_string()) };
    format!(
        "`autotune-lowered {module} --compiler-options safe` finds the compiler options that make it run fastest and \
         needs no label; `@autotune_lowered.tunable` {of_lines} gives labels, and `--label-regex` finds your own \
         names"
    )
}
