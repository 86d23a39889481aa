//! Decisions: whether the winner is right and the same on every run, and how much a decision costs.
//!
//! `cargo bench --bench decisions -- --peer PYTHON` tunes six cases with 32 to 36 configs each, repeatedly, each time
//! with a fresh cache folder, and compares every run with a reference that is measured before and after the runs. The
//! cases are blocked matrix products of three sizes, and a causal attention, a masked softmax with a matrix product and
//! a convolution, whose best config is in no corner of its space.
//! With `--parts flips`, fresh runs of the tool, of ejkernel's tuner and of tune-jax are compared with each other.
//! `--help` lists the parts and their flags. The benchmark needs a Python with JAX for the programs (`--python`, else
//! that of the active environment) and a PJRT plugin for CPUs (`--plugin`, else the one that is found).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, clippy::panic)]

mod aa;
mod flips;
mod load;
mod options;
mod peer;
mod programs;
mod reference;
mod repeats;
mod summary;
mod tables;
mod tool;
mod turns;
mod wall;

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use load::Load;
use options::{Format, Options, Part};
use programs::Programs;
use reference::{Half, Reference};

/// All measurements, as `--format json` prints them.
#[derive(Default, Serialize)]
struct Report {
    tool: String,
    cores: usize,
    plugin: String,
    /// For each finished part: its name, seconds since the start, and the machine's mean load of one minute.
    parts: Vec<(String, f64, f64)>,
    reference: Vec<reference::Row>,
    repeats: Vec<repeats::Row>,
    /// First without load, then with it.
    wall: Vec<wall::Wall>,
    /// As `wall`.
    peer: Vec<peer::Peer>,
    aa: Vec<aa::Row>,
    /// As `wall`.
    flips: Vec<flips::Compared>,
}

impl Report {
    fn ended(&mut self, part: &str, began: Instant) {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("{part} ended after {seconds:.0} s, load {load}");
        self.parts.push((part.to_owned(), seconds, load));
    }

    /// Saves after each part, so that an interrupted run loses only the unfinished part.
    fn save(&self, path: &Path) {
        std::fs::write(path, serde_json::to_vec_pretty(self).unwrap()).unwrap();
    }
}

fn main() {
    if load::is_load() {
        return load::burn();
    }
    let options = Options::from_arguments();
    let programs = Programs::make(&options);
    // documents of an earlier run would be mistaken for this run's
    let _ = std::fs::remove_dir_all(options.work.join("runs"));
    let saved = options.work.join("decisions.json");
    let mut report = Report {
        tool: tool::version(&options),
        cores: std::thread::available_parallelism().unwrap().get(),
        plugin: options.plugin.display().to_string(),
        ..Report::default()
    };
    let began = Instant::now();
    report.ended("start", began);

    let judged = [Part::Repeats, Part::Wall, Part::Peer, Part::Flips].into_iter().any(|part| options.has(part));
    // load changes the best config, so each load has its own reference
    let halves = |half: u64| -> Vec<Half> {
        let beside = |load: usize| {
            let _busy = Load::start(load);
            Half::measure(&options, &programs, half)
        };
        options.loads().into_iter().map(beside).collect()
    };
    let first = (judged || options.has(Part::Reference)).then(|| {
        let first = halves(0);
        report.ended("first half of the reference", began);
        first
    });
    let mut runs = Vec::new();
    if options.has(Part::Repeats) {
        runs = repeats::run(&options, &programs);
        report.ended("repeats", began);
    }
    let mut turns = Vec::new();
    if options.has(Part::Wall) || options.has(Part::Peer) {
        for load in options.loads() {
            turns.push(turns::run(&options, &programs, load));
            report.ended(&format!("wall and peer beside {load} busy processes"), began);
        }
    }
    let mut flips = Vec::new();
    if options.has(Part::Flips) {
        for load in options.loads() {
            flips.push(flips::run(&options, &programs, load));
            report.ended(&format!("flips beside {load} busy processes"), began);
        }
    }
    if let Some(first) = first {
        let second = halves(1);
        report.ended("second half of the reference", began);
        let of_load = |(first, second): (&Half, &Half)| Reference::of_halves(&programs, first, second);
        let references: Vec<Vec<Reference>> = first.iter().zip(&second).map(of_load).collect();
        report.repeats = repeats::judge(&options, &programs, &references, &runs);
        let rows = |(load, references): (usize, &Vec<Reference>)| {
            reference::rows(&programs, load, references, &report.repeats)
        };
        report.reference = options.loads().into_iter().zip(&references).flat_map(rows).collect();
        // the bound is for a quiet machine
        let sample_ns = references[0].iter().map(|reference| reference.pooled.ns.iter().sum::<f64>()).sum::<f64>();
        if let Some(quiet) = turns.first().and_then(|turns| turns.peers.as_ref()) {
            let peers = turns.iter().zip(&references);
            let peers = peers.filter_map(|(turns, references)| Some((turns.load, turns.peers.as_ref()?, references)));
            let judged = peers.map(|(load, peers, references)| peers.judge(load, quiet, &programs, references));
            report.peer = judged.collect();
        }
        let walls = turns.into_iter().filter_map(|turns| Some((turns.load, turns.walls?)));
        report.wall = walls.map(|(load, walls)| walls.judge(load, &programs, sample_ns)).collect();
        report.flips = flips.iter().zip(&references).map(|(runs, of)| runs.judge(&programs, of)).collect();
        report.save(&saved);
    }
    if options.has(Part::Aa) {
        aa::run(&options, &programs, |row| {
            report.aa.push(row);
            report.save(&saved);
        });
        report.ended("A/A", began);
    }
    report.save(&saved);
    eprintln!("all of it, run by run, is in `{}`, and what each run said in `runs` beside it", saved.display());
    match options.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&report).unwrap()),
        Format::Markdown => print!("{}", tables::markdown(&report)),
    }
}
