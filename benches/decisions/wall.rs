//! What a decision costs: wall time of fresh runs beside what compiling and twenty runs of each candidate must take.

use std::collections::BTreeMap;
use std::path::Path;

use autotune_lowered::timer::Timer;
use serde::Serialize;

use crate::options::Options;
use crate::programs::Programs;
use crate::summary::Summary;
use crate::tool;

/// Runs of each candidate in the bound.
const RUNS: f64 = 20.0;

/// Ticks a second of the times in `/proc`, whatever the kernel's own.
const USER_HZ: f64 = 100.0;

/// What was taken, without the reference that the bound needs.
pub(crate) struct Walls {
    first: Vec<f64>,
    nothing_new: Vec<f64>,
    force: Vec<f64>,
    compile_cpu: Vec<f64>,
    spent: BTreeMap<String, Vec<f64>>,
}

pub(crate) fn run(options: &Options, programs: &Programs) -> Walls {
    let mut walls = Walls {
        first: Vec::new(),
        nothing_new: Vec::new(),
        force: Vec::new(),
        compile_cpu: Vec::new(),
        spent: BTreeMap::new(),
    };
    for turn in 0..options.wall {
        let cache = tool::fresh_folder(options);
        let tune = |more: &[&str]| tool::tune(options, &programs.matmul, cache.path(), more);
        let first = tune(&[]);
        walls.first.push(first.seconds);
        walls.nothing_new.push(tune(&[]).seconds);
        walls.force.push(tune(&["--force"]).seconds);
        walls.take_spent(&first.result);
        // between the runs: what the machine does meanwhile meets both
        walls.compile_cpu.push(compile_cpu(options, programs));
        eprintln!("wall time {} of {}: {:.1} s", turn + 1, options.wall, first.seconds);
    }
    walls
}

/// Processor seconds of compiling each program once, one at a time: those of workers that compile and load them, less those
/// of workers that only load them.
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
    for operation in &programs.matmul.operations {
        timer.begin(&operation.job(&programs.matmul.registry, scratch)).unwrap();
        for candidate in 0..operation.len() {
            timer.prepare(candidate).unwrap();
        }
        timer.end();
    }
}

/// Processor seconds of all children that have ended, with theirs: `cutime` and `cstime` of `/proc/self/stat`.
fn cpu_of_children() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // the name before may hold blanks, and ends with the last bracket
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    (ticks(16) + ticks(17)) / USER_HZ
}

/// The wall times as they are reported; seconds.
#[derive(Serialize)]
pub(crate) struct Wall {
    pub(crate) programs: usize,
    pub(crate) first: Summary,
    pub(crate) nothing_new: Summary,
    pub(crate) force: Summary,
    pub(crate) compile_cpu: Summary,
    /// Sum of all candidates' reference times, one run of each.
    pub(crate) one_run_of_each: f64,
    /// Compile processor time over the cores, and twenty runs of each candidate.
    pub(crate) bound: f64,
    /// Where the tool says that its time went, over all operations.
    pub(crate) spent: BTreeMap<String, Summary>,
}

impl Walls {
    fn take_spent(&mut self, result: &serde_json::Value) {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for operation in result["operations"].as_array().unwrap() {
            for (name, ns) in operation["spent"].as_object().into_iter().flatten() {
                *sums.entry(name.trim_end_matches("_ns").to_owned()).or_default() += ns.as_f64().unwrap_or(0.0) / 1e9;
            }
        }
        for (name, seconds) in sums {
            self.spent.entry(name).or_default().push(seconds);
        }
    }

    /// With the sum of all reference times.
    pub(crate) fn judge(self, programs: &Programs, sample_ns: f64) -> Wall {
        let compile_cpu = Summary::of(self.compile_cpu);
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let one_run_of_each = sample_ns / 1e9;
        Wall {
            programs: programs.matmul.operations.iter().map(|operation| operation.len()).sum(),
            bound: compile_cpu.median / cores + RUNS * one_run_of_each,
            first: Summary::of(self.first),
            nothing_new: Summary::of(self.nothing_new),
            force: Summary::of(self.force),
            compile_cpu,
            one_run_of_each,
            spent: self.spent.into_iter().map(|(name, seconds)| (name, Summary::of(seconds))).collect(),
        }
    }
}
