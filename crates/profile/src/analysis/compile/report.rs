//! Time by phase and by compilation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::profile::interval::{Coverage, Interval, union_ps};
use crate::setters;

use super::forest::{CompileRange, Forest};
use super::phase::{AUTOTUNER_COMPILATION, AUTOTUNER_MEASUREMENT, attribute, phase, stem};

/// The first compilation's own time outside its phases, in which libraries are loaded.
const FIRST: &str = "first compilation itself (library loading)";

/// How compilation is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Each pass separately.
    pub by_pass: bool,
    /// The autotuner's compilations by phase, not as one.
    pub autotuner_detail: bool,
}

setters!(CompileOptions { by_pass: bool, autotuner_detail: bool });

/// Where compilation spent its time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CompileReport {
    /// Durations of all compilations, added up: the sum of all phases.
    pub total_ns: f64,
    /// Time in which at least one compilation was in progress.
    pub elapsed_ns: f64,
    /// The part of the total in which worker threads compiled.
    pub parallel_ns: f64,
    /// The same as the sum over the worker threads' ranges.
    pub worker_ns: f64,
    /// The first compilation's own time; part of the phases.
    pub library_loading_ns: f64,
    /// Phases, the longest first.
    pub phases: Vec<PhaseTime>,
    /// Compilations, by start.
    pub compilations: Vec<Compilation>,
    /// Caveats on the numbers, one line each.
    pub notes: Vec<String>,
}

/// A phase of all compilations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PhaseTime {
    /// Its name.
    pub phase: String,
    /// Time in it and not in a nested phase; for worker threads their share of the time in which they ran.
    pub exclusive_ns: f64,
    /// The part of the total.
    pub share: f64,
    /// Ranges.
    pub ranges: u64,
}

/// One compilation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compilation {
    /// The module's name, where it is known.
    pub module: Option<String>,
    /// The program's id.
    pub program_id: Option<i64>,
    /// From start to end.
    pub duration_ns: f64,
    /// The part of it in which worker threads compiled.
    pub parallel_ns: f64,
    /// Worker threads.
    pub workers: usize,
}

/// Adds up compilation: each range's self time, and instead of worker threads' times the time in which they ran,
/// divided among their ranges in proportion to their self times.
pub fn compile_report(ranges: &[CompileRange], options: CompileOptions) -> CompileReport {
    let forest = Forest::new(ranges);
    let mut adder = Adder { forest: &forest, options, phases: BTreeMap::new(), report: CompileReport::default() };
    for (number, &root) in forest.roots.iter().enumerate() {
        adder.compilation(root, number == 0);
    }
    let Adder { phases, mut report, .. } = adder;
    let roots = forest.roots.iter().filter_map(|&root| forest.nodes.get(root));
    let times: Vec<Interval> =
        roots.map(|node| Interval { start_ps: node.range.start_ps, end_ps: node.range.end_ps }).collect();
    report.total_ns = times.iter().map(Interval::length_ps).sum::<u64>() as f64 / 1e3;
    report.elapsed_ns = union_ps(times) as f64 / 1e3;
    let share = |ps: f64| if report.total_ns > 0.0 { ps / 1e3 / report.total_ns } else { 0.0 };
    report.phases = phases
        .into_iter()
        .map(|(phase, (ps, ranges))| PhaseTime { phase, exclusive_ns: ps / 1e3, share: share(ps), ranges })
        .collect();
    report.phases.sort_by(|one, other| other.exclusive_ns.total_cmp(&one.exclusive_ns));
    if forest.ambiguous > 0 {
        report.notes.push(format!(
            "worker ranges while several compilations were in progress: {}; each was counted for the one that began \
             last",
            forest.ambiguous
        ));
    }
    report
}

struct Adder<'f, 'r> {
    forest: &'f Forest<'r>,
    options: CompileOptions,
    phases: BTreeMap<String, (f64, u64)>,
    report: CompileReport,
}

/// A range to visit, with the phase and the name of its parent.
type Open<'r> = (usize, Option<(String, &'r str)>);

impl<'r> Adder<'_, 'r> {
    fn compilation(&mut self, root: usize, is_first: bool) {
        let Some(node) = self.forest.nodes.get(root) else { return };
        let (mut parallel_ps, mut threads) = (0_u64, BTreeSet::new());
        let (mut module, mut program_id) =
            (attribute(&node.range.name, "module"), attribute(&node.range.name, "program_id"));
        let mut open: Vec<Open<'r>> = vec![(root, None)];
        while let Some((place, around)) = open.pop() {
            let Some(node) = self.forest.nodes.get(place) else { continue };
            let name = &*node.range.name;
            module = module.or_else(|| attribute(name, "module")).or(node.range.module.as_deref());
            program_id = program_id.or_else(|| attribute(name, "program_id"));
            let phase = self.phase(name, &around);
            let mut own = node.range.duration_ps() as f64;
            if !self.is_one_block(name) {
                let children: Vec<Interval> = node.children.iter().filter_map(|&child| self.time(child)).collect();
                own -= children.iter().map(|child| child.length_ps() as f64).sum::<f64>();
                for (parallel, workers) in self.stretches(&node.workers, &children) {
                    if self.share_out(&workers, parallel, (&phase, name)) {
                        own -= parallel as f64;
                        parallel_ps += parallel;
                    }
                }
                threads.extend(node.workers.iter().filter_map(|&worker| self.thread(worker)));
                open.extend(node.children.iter().map(|&child| (child, Some((phase.clone(), name)))));
            }
            let phase = if place == root && is_first && own > 0.0 {
                self.report.library_loading_ns = own / 1e3;
                FIRST.to_owned()
            } else {
                phase
            };
            self.add(phase, own.max(0.0));
        }
        self.report.parallel_ns += parallel_ps as f64 / 1e3;
        self.report.compilations.push(Compilation {
            module: module.map(str::to_owned),
            program_id: program_id.and_then(|id| id.parse().ok()),
            duration_ns: node.range.duration_ps() as f64 / 1e3,
            parallel_ns: parallel_ps as f64 / 1e3,
            workers: threads.len(),
        });
    }

    fn phase(&self, name: &str, around: &Option<(String, &str)>) -> String {
        let around = around.as_ref().map(|(phase, name)| (phase.as_str(), *name));
        phase(name, around, self.options.by_pass).into_owned()
    }

    /// Whether a range's parts are not reported: the autotuner runs small modules, whose phases are not the program's.
    fn is_one_block(&self, name: &str) -> bool {
        match stem(name) {
            AUTOTUNER_MEASUREMENT => true,
            AUTOTUNER_COMPILATION => !self.options.autotuner_detail,
            _ => false,
        }
    }

    fn add(&mut self, phase: String, ps: f64) {
        let (sum, ranges) = self.phases.entry(phase).or_default();
        *sum += ps;
        *ranges += 1;
    }

    fn time(&self, place: usize) -> Option<Interval> {
        self.forest.nodes.get(place).map(|node| Interval { start_ps: node.range.start_ps, end_ps: node.range.end_ps })
    }

    fn thread(&self, place: usize) -> Option<u64> {
        self.forest.nodes.get(place).map(|node| node.range.thread)
    }

    /// Intervals in which workers ran, each from the first one's start to the last one's end, between ranges of the
    /// launcher's own thread: the time of each without the launcher's, and its workers.
    fn stretches(&self, workers: &[usize], children: &[Interval]) -> Vec<(u64, Vec<usize>)> {
        let mut by_gap: BTreeMap<usize, (Interval, Vec<usize>)> = BTreeMap::new();
        for (worker, time) in workers.iter().filter_map(|&worker| Some((worker, self.time(worker)?))) {
            let before = children.partition_point(|child| child.start_ps <= time.start_ps);
            let (stretch, list) = by_gap.entry(before).or_insert_with(|| (time, Vec::new()));
            stretch.start_ps = stretch.start_ps.min(time.start_ps);
            stretch.end_ps = stretch.end_ps.max(time.end_ps);
            list.push(worker);
        }
        let mut stretches: Vec<(Interval, Vec<usize>)> = Vec::new();
        for (stretch, mut list) in by_gap.into_values() {
            match stretches.last_mut() {
                Some((last, workers)) if stretch.start_ps < last.end_ps => {
                    last.end_ps = last.end_ps.max(stretch.end_ps);
                    workers.append(&mut list);
                }
                _ => stretches.push((stretch, list)),
            }
        }
        let own = Coverage::new(children.to_vec());
        let without_own = |stretch: Interval| stretch.length_ps().saturating_sub(own.of(stretch));
        stretches.into_iter().map(|(stretch, workers)| (without_own(stretch), workers)).collect()
    }

    /// Divides the time in which workers ran among their ranges, by their own times. `false` if they have none.
    fn share_out(&mut self, workers: &[usize], parallel_ps: u64, around: (&str, &'r str)) -> bool {
        let mut rows: Vec<(String, u64)> = Vec::new();
        let mut open: Vec<Open<'r>> =
            workers.iter().map(|&worker| (worker, Some((around.0.to_owned(), around.1)))).collect();
        while let Some((place, around)) = open.pop() {
            let Some(node) = self.forest.nodes.get(place) else { continue };
            let name = &*node.range.name;
            let phase = self.phase(name, &around);
            let mut own = node.range.duration_ps();
            if !self.is_one_block(name) {
                let children = node.children.iter().filter_map(|&child| self.time(child));
                own = own.saturating_sub(children.map(|child| child.length_ps()).sum());
                open.extend(node.children.iter().map(|&child| (child, Some((phase.clone(), name)))));
            }
            rows.push((phase, own));
        }
        let total: u64 = rows.iter().map(|(_, own)| own).sum();
        self.report.worker_ns += total as f64 / 1e3;
        if total == 0 {
            return false;
        }
        for (phase, own) in rows {
            self.add(phase, parallel_ps as f64 * (own as f64 / total as f64));
        }
        true
    }
}
