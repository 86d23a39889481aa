//! Full runs of the tool, each with an empty cache folder, compared with the reference.

use serde::Serialize;
use serde_json::Value;

use crate::load::Load;
use crate::options::Options;
use crate::programs::{Operation, Programs};
use crate::reference::Reference;
use crate::summary::{Summary, mean_jaccard};
use crate::tool;

/// Used if the tool reports no `resolution`: its minimum improvement.
pub(crate) const ASSUMED_RESOLUTION: f64 = 0.02;

/// The minimum improvements to try: none, and the tool's default.
const MODES: [Option<&str>; 2] = [Some("0"), None];

/// A run, with the busy processes meanwhile and its minimum improvement.
pub(crate) struct Repeat {
    load: usize,
    mode: Option<&'static str>,
    result: Value,
    seconds: f64,
}

pub(crate) fn run(options: &Options, programs: &Programs) -> Vec<Repeat> {
    let module = &programs.cases;
    let kept = options.keep_executables.then(|| {
        let folder = tool::fresh_folder(options);
        tool::tune(options, module, folder.path(), &tool::thorough(options));
        folder
    });
    let mut runs = Vec::new();
    for load in options.loads() {
        let _busy = Load::start(load);
        for repeat in 0..options.repeats {
            // alternating, so that the machine's disturbances affect both alike
            for mode in MODES {
                let cache = tool::fresh_folder(options);
                if let Some(kept) = &kept {
                    tool::copy_executables(kept.path(), cache.path());
                }
                let more = mode.map_or(vec![], |mode| vec!["--min-improvement", mode]);
                let run = tool::tune(options, module, cache.path(), &more);
                let (of, at) = (options.repeats, mode.unwrap_or("default"));
                eprintln!("repeat {} of {of}, {}, load {load}: {:.1} s", repeat + 1, name(mode), run.seconds);
                tool::keep(options, &format!("repeat-{repeat}-at-{at}-load-{load}"), &run.result);
                runs.push(Repeat { load, mode, result: run.result, seconds: run.seconds });
            }
        }
    }
    runs
}

fn name(mode: Option<&str>) -> String {
    mode.map_or("the default".to_owned(), str::to_owned)
}

/// All runs of one case with one minimum improvement under one load.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) load: usize,
    pub(crate) case: String,
    pub(crate) min_improvement: String,
    pub(crate) n: usize,
    /// Runs without a decision; no column counts them.
    pub(crate) undecided: usize,
    pub(crate) regret: Summary,
    /// The same relative to each half of the reference alone.
    pub(crate) regret_of_halves: [Summary; 2],
    /// The smallest regret that is no mistake at this minimum improvement.
    pub(crate) allowed: f64,
    pub(crate) winners_tied: usize,
    /// Runs whose tie set contains a candidate that is slower by over twice the resolution.
    pub(crate) runs_with_slower: usize,
    /// The slowest candidate in any tie set.
    pub(crate) slowest_tied: f64,
    pub(crate) jaccard: f64,
    pub(crate) ties: Summary,
    pub(crate) winners: Vec<String>,
    pub(crate) resolution: Summary,
    pub(crate) rounds: Summary,
    pub(crate) seconds: Summary,
}

/// Compares the runs under each load with the reference under the same load.
pub(crate) fn judge(
    options: &Options,
    programs: &Programs,
    references: &[Vec<Reference>],
    runs: &[Repeat],
) -> Vec<Row> {
    if runs.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for (load, references) in options.loads().into_iter().zip(references) {
        for mode in MODES {
            let runs: Vec<&Repeat> = runs.iter().filter(|run| (run.load, run.mode) == (load, mode)).collect();
            let operations = programs.cases.operations.iter().zip(references);
            rows.extend(operations.map(|(operation, reference)| row(operation, reference, load, mode, &runs)));
        }
    }
    rows
}

/// One run's decision on one operation.
struct Decision {
    winner: usize,
    ties: Vec<usize>,
    resolution: f64,
    rounds: f64,
}

fn decision(operation: &Operation, run: &Repeat) -> Option<Decision> {
    let said = tool::operation(&run.result, operation);
    let mut ties: Vec<usize> =
        said["tie_set"].as_array()?.iter().filter_map(|config| operation.candidate(config)).collect();
    ties.sort_unstable();
    Some(Decision {
        winner: operation.candidate(&said["best"]["config"])?,
        ties,
        resolution: said["resolution"].as_f64().unwrap_or(ASSUMED_RESOLUTION),
        rounds: said["rounds_measured"].as_f64().unwrap_or(f64::NAN),
    })
}

fn row(operation: &Operation, reference: &Reference, load: usize, mode: Option<&str>, runs: &[&Repeat]) -> Row {
    let decisions: Vec<Decision> = runs.iter().filter_map(|run| decision(operation, run)).collect();
    let all = |of: &dyn Fn(&Decision) -> f64| Summary::of(decisions.iter().map(of).collect());
    let Reference { halves, pooled } = reference;
    let slowest_tied = |decision: &Decision| decision.ties.iter().map(|&tied| pooled.regret(tied)).fold(0.0, f64::max);
    let resolution = all(&|decision| decision.resolution);
    let is_tied = |decision: &&Decision| pooled.ties(decision.resolution).contains(&decision.winner);
    let sets: Vec<Vec<usize>> = decisions.iter().map(|decision| decision.ties.clone()).collect();
    let minimum = mode.map_or(ASSUMED_RESOLUTION, |_| 0.0);
    Row {
        load,
        case: operation.name.clone(),
        min_improvement: name(mode),
        n: decisions.len(),
        undecided: runs.len() - decisions.len(),
        regret: all(&|decision| pooled.regret(decision.winner)),
        regret_of_halves: halves.each_ref().map(|half| all(&|decision| half.regret(decision.winner))),
        allowed: if mode.is_some() { 0.01 } else { resolution.median.max(minimum).max(0.01) },
        winners_tied: decisions.iter().filter(is_tied).count(),
        runs_with_slower: decisions.iter().filter(|it| slowest_tied(it) > 2.0 * it.resolution).count(),
        slowest_tied: decisions.iter().map(slowest_tied).fold(0.0, f64::max),
        jaccard: mean_jaccard(&sets),
        ties: all(&|decision| decision.ties.len() as f64),
        winners: decisions.iter().map(|decision| operation.brief(decision.winner)).collect(),
        resolution,
        rounds: all(&|decision| decision.rounds),
        seconds: Summary::of(runs.iter().map(|run| run.seconds).collect()),
    }
}
