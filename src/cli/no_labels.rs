//! What a run says of a module that holds nothing to tune.

use std::io::Write;
use std::path::Path;

use crate::hlo::Scan;
use crate::printable::printable;

use super::fault::Fault;
use super::profile;
use super::say::say;
use super::scan::{nothing_matched, user_labels};
use super::tune_args::TuneArgs;

/// Says that a module holds nothing to tune, and what to do.
pub(super) fn without_labels(args: &TuneArgs, scan: &Scan, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.report.is_some() {
        say("no report is written: the module holds no label");
    }
    say(&advice(args));
    nothing_matched(scan, &args.format, out)
}

/// One line of advice for a module without labels; for a profiled step, also where its time goes.
fn advice(args: &TuneArgs) -> String {
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
    let module = match args.module == Path::new("-") {
        true => "MODULE".to_owned(),
        false => printable(&args.module.display().to_string()),
    };
    format!(
        "`autotune-lowered {module} --compiler-options safe` finds the compiler options that make it run fastest and \
         needs no label; `@autotune_lowered.tunable` {of_lines} gives labels, and `--label-regex` finds your own \
         names"
    )
}
