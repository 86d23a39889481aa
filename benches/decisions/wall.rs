//! The cost of a decision: wall time of fresh runs, compared with the minimum for compiling each candidate and running
//! it twenty times.

use std::collections::BTreeMap;
use std::path::Path;

use autotune_lowered::timer::Timer;
use serde::Serialize;
use tempfile::TempDir;

use crate::options::Options;
use crate::programs::Programs;
use crate::summary::Summary;
use crate::tool::{self, Run};

/// Runs of each candidate in the bound.
const RUNS: f64 = 20.0;

/// Ticks per second of the times in `/proc`, independent of the kernel's own ticks.
const USER_HZ: f64 = 100.0;

/// The measurements, without the reference that the bound needs; in seconds.
#[derive(Default)]
pub(crate) struct Walls {
    first: Vec<f64>,
    nothing_new: Vec<f64>,
    force: Vec<f64>,
    thorough: Vec<f64>,
    by_jax: Vec<f64>,
    compile_cpu: Vec<f64>,
    measuring_share: Vec<f64>,
    spent: BTreeMap<String, Vec<f64>>,
}

/// Processor seconds of compiling each program once, one at a time: those of workers that compile and load them, minus
/// those of workers that only load them.
fn compile_cpu(options: &Options, programs: &Programs) -> f64 {
    let executables = tool::fresh_folder(options);
    let scratch = tool::fresh_folder(options);
    let prepare = || {
        let before = cpu_of_children();
        prepare_all(options, programs, executables.path(), scratch.path());
        cpu_of_children() - before
    };
    let compiled = prepare();
    compiled - prepare()
}

fn prepare_all(options: &Options, programs: &Programs, executables: &Path, scratch: &Path) {
    let mut timer = tool::timer(options, executables);
    for operation in &programs.cases.operations {
        timer.begin(&operation.job(&programs.cases.registry, scratch)).unwrap();
        for candidate in 0..operation.len() {
            timer.prepare(candidate).unwrap();
        }
        timer.end();
    }
}

/// Processor seconds of all ended children and their children: `cutime` and `cstime` of `/proc/self/stat`.
fn cpu_of_children() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // the name before may contain blanks, and ends with the last bracket
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    (ticks(16) + ticks(17)) / USER_HZ
}

/// The wall times in the report; in seconds.
#[derive(Serialize)]
pub(crate) struct Wall {
    /// Busy processes during the runs.
    pub(crate) load: usize,
    pub(crate) programs: usize,
    pub(crate) first: Summary,
    pub(crate) nothing_new: Summary,
    pub(crate) force: Summary,
    /// A first run that compiles and measures everything; empty if the tool has no such mode.
    pub(crate) thorough: Summary,
    /// A first run in the peer's own runtime: `--timer jax` with its Python; empty without a peer.
    pub(crate) by_jax: Summary,
    pub(crate) compile_cpu: Summary,
    /// Sum of all candidates' reference times, one run of each.
    pub(crate) one_run_of_each: f64,
    /// Compile processor time divided by the cores, plus twenty runs of each candidate.
    pub(crate) bound: f64,
    /// For each run: measuring time over the whole first run.
    pub(crate) measuring_share: Summary,
    /// The tool's own account of its time, over all operations.
    pub(crate) spent: BTreeMap<String, Summary>,
}

impl Walls {
    /// One run of each kind, the first in a new cache folder; returns the seconds of that.
    pub(crate) fn take(&mut self, options: &Options, programs: &Programs) -> f64 {
        let cache = tool::fresh_folder(options);
        let tune = |cache: &TempDir, more: &[&str]| tool::tune(options, &programs.cases, cache.path(), more);
        let first = tune(&cache, &[]);
        self.first.push(first.seconds);
        self.nothing_new.push(tune(&cache, &[]).seconds);
        self.force.push(tune(&cache, &["--force"]).seconds);
        let thorough = tool::thorough(options);
        if !thorough.is_empty() {
            self.thorough.push(tune(&tool::fresh_folder(options), &thorough).seconds);
        }
        if let Some(python) = &options.peer {
            let cache = tool::fresh_folder(options);
            self.by_jax.push(tool::tune_by_jax(options, python, &programs.cases, cache.path()).seconds);
        }
        self.take_spent(&first);
        // between the runs, so that the machine's disturbances affect both alike
        self.compile_cpu.push(compile_cpu(options, programs));
        first.seconds
    }

    fn take_spent(&mut self, run: &Run) {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for operation in run.result["operations"].as_array().unwrap() {
            for (name, ns) in operation["time_breakdown"].as_object().into_iter().flatten() {
                *sums.entry(name.trim_end_matches("_ns").to_owned()).or_default() += ns.as_f64().unwrap_or(0.0) / 1e9;
            }
        }
        self.measuring_share.extend(sums.get("measuring").map(|measuring| measuring / run.seconds));
        for (name, seconds) in sums {
            self.spent.entry(name).or_default().push(seconds);
        }
    }

    /// Adds the sum of all reference times.
    pub(crate) fn judge(self, load: usize, programs: &Programs, sample_ns: f64) -> Wall {
        let compile_cpu = Summary::of(self.compile_cpu);
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let one_run_of_each = sample_ns / 1e9;
        Wall {
            load,
            programs: programs.cases.operations.iter().map(|operation| operation.len()).sum(),
            bound: compile_cpu.median / cores + RUNS * one_run_of_each,
            first: Summary::of(self.first),
            nothing_new: Summary::of(self.nothing_new),
            force: Summary::of(self.force),
            thorough: Summary::of(self.thorough),
            by_jax: Summary::of(self.by_jax),
            compile_cpu,
            one_run_of_each,
            measuring_share: Summary::of(self.measuring_share),
            spent: self.spent.into_iter().map(|(name, seconds)| (name, Summary::of(seconds))).collect(),
        }
    }
}
