//! One kernel against itself under eight names: every decision for a better name is false.

use std::path::Path;

use serde::Serialize;

use crate::load::Load;
use crate::options::Options;
use crate::programs::Programs;
use crate::summary::{Summary, rate_at_most};
use crate::tool;

/// The runs under one background load.
#[derive(Serialize)]
pub(crate) struct Row {
    /// Busy processes during the runs.
    pub(crate) load: usize,
    pub(crate) names: usize,
    pub(crate) n: usize,
    /// Runs that called a name better than the baseline.
    pub(crate) false_wins: usize,
    /// Upper end of the 95% interval of their rate, one-sided.
    pub(crate) rate_at_most: f64,
    /// The name and its gain: the baseline's time over the winner's. The runs' documents are kept in the work folder.
    pub(crate) wins: Vec<(String, f64)>,
    /// Runs that decided nothing.
    pub(crate) undecided: usize,
    /// Largest distance of a name's median ratio from one, run by run.
    pub(crate) largest_difference: Summary,
    pub(crate) resolution: Summary,
    pub(crate) ties: Summary,
    pub(crate) rounds: Summary,
    pub(crate) seconds: Summary,
}

pub(crate) fn run(options: &Options, programs: &Programs, mut done: impl FnMut(Row)) {
    if options.aa == 0 {
        return;
    }
    let kept = tool::fresh_folder(options);
    tool::tune(options, &programs.aa, kept.path(), &tool::thorough(options));
    done(under(options, programs, kept.path(), 0));
    if options.load > 0 {
        done(under(options, programs, kept.path(), options.load));
    }
}

fn under(options: &Options, programs: &Programs, kept: &Path, load: usize) -> Row {
    let [operation] = programs.aa.operations.as_slice() else { panic!("the A/A module has one operation") };
    let _busy = Load::start(load);
    let (mut undecided, mut wins) = (0, Vec::new());
    let (mut largest, mut resolution, mut ties, mut rounds, mut seconds) = (vec![], vec![], vec![], vec![], vec![]);
    for turn in 0..options.aa {
        let cache = tool::fresh_folder(options);
        tool::copy_executables(kept, cache.path());
        let run = tool::tune(options, &programs.aa, cache.path(), &[]);
        let said = tool::operation(&run.result, operation);
        match said["status"].as_str() {
            Some("tuned") => {
                wins.push((said["best"]["config"].to_string(), said["speed_up"].as_f64().unwrap_or(f64::NAN)));
                tool::keep(options, &format!("false-win-load-{load}-run-{turn}"), &run.result);
            }
            Some("baseline-kept") => {}
            _ => undecided += 1,
        }
        let ratios = said["candidates"].as_array().into_iter().flatten().filter_map(|one| one["ratio"].as_f64());
        largest.push(ratios.map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max));
        resolution.extend(said["resolution"].as_f64());
        ties.push(said["tie_set"].as_array().map_or(0.0, |ties| ties.len() as f64));
        rounds.extend(said["rounds_measured"].as_f64());
        seconds.push(run.seconds);
        if (turn + 1) % 10 == 0 {
            eprintln!("A/A, load {load}: {} of {}, {} false wins", turn + 1, options.aa, wins.len());
        }
    }
    Row {
        load,
        names: operation.len(),
        n: options.aa,
        false_wins: wins.len(),
        rate_at_most: rate_at_most(wins.len(), options.aa),
        wins,
        undecided,
        largest_difference: Summary::of(largest),
        resolution: Summary::of(resolution),
        ties: Summary::of(ties),
        rounds: Summary::of(rounds),
        seconds: Summary::of(seconds),
    }
}
