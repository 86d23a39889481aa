//! Fresh runs of each tuner: how good their configs are, and how often two runs disagree.
//!
//! Regret stands beside the flips, because a tuner that always keeps the baseline never flips. The tuners take turns, so
//! the machine's disturbances affect all of them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::load::Load;
use crate::options::Options;
use crate::peer::{self, EJKERNEL, Measured, Script};
use crate::programs::{Operation, Programs};
use crate::reference::{Judged, Reference};
use crate::summary::{Summary, mean, pairs_that_differ};
use crate::tool;

/// Processes that tune at the same time, as the hosts of a fleet do that start together.
const RANKS: usize = 4;

/// A config that is slower than the reference's best by up to this counts as the best.
const TIED: f64 = 0.01;

/// The script of tune-jax.
const TUNE_JAX: &str = "peer_tune_jax.py";

#[derive(Clone, Copy)]
enum Tuner<'a> {
    Ours,
    Ejkernel(Script<'a>),
    /// Keeps nothing between processes.
    TuneJax(Script<'a>),
}

/// What a process published for one case.
#[derive(Clone, Copy)]
struct Published {
    /// Candidate that is in use after the run: the baseline, if nothing was decided.
    config: usize,
    is_decided: bool,
    /// Whether it came from the store, without a measurement.
    is_stored: bool,
}

/// One process.
struct Run {
    version: String,
    /// Wall time; for a peer its tuner's time over all cases, without the start of Python.
    seconds: f64,
    /// In the order of the cases.
    published: Vec<Published>,
    /// A part of the reference of the peers' runtime.
    own_reference: Vec<Measured>,
}

/// A fresh run, and a second one on what it stored; none for a tuner without a store.
struct Fresh {
    first: Run,
    replay: Option<Run>,
}

/// All runs of one tuner.
struct Tuned {
    is_peer: bool,
    fresh: Vec<Fresh>,
    ranks: Vec<Run>,
}

/// All runs beside a number of busy processes.
pub(crate) struct Runs {
    load: usize,
    tuned: Vec<Tuned>,
}

/// What all runs beside a number of busy processes share.
#[derive(Clone, Copy)]
struct Bench<'a> {
    options: &'a Options,
    programs: &'a Programs,
    load: usize,
}

pub(crate) fn run(options: &Options, programs: &Programs, load: usize) -> Runs {
    let _busy = Load::start(load);
    let bench = Bench { options, programs, load };
    let tuners = Tuner::all(options);
    let new = |tuner: &Tuner<'_>| Tuned { is_peer: tuner.is_peer(), fresh: Vec::new(), ranks: Vec::new() };
    let mut tuned: Vec<Tuned> = tuners.iter().map(new).collect();
    for turn in 0..options.flip_runs {
        for (place, (tuner, tuned)) in tuners.iter().zip(&mut tuned).enumerate() {
            // the peers' reference is from two processes, one at each end, as that of the plugin
            let is_end = [(0, 1), (options.flip_runs - 1, tuners.len() - 1)].contains(&(turn, place));
            let fresh = tuner.fresh(bench, turn, if is_end && tuner.is_peer() { options.rounds } else { 0 });
            let (of, seconds) = (options.flip_runs, fresh.first.seconds);
            eprintln!("fresh run {} of {of}, {}, load {load}: {seconds:.1} s", turn + 1, fresh.first.version);
            tuned.fresh.push(fresh);
        }
        check_runtimes(&tuned);
    }
    for (tuner, tuned) in tuners.iter().zip(&mut tuned) {
        tuned.ranks = tuner.ranks(bench);
        eprintln!("{RANKS} ranks of {}, load {load}", tuned.ranks[0].version);
    }
    Runs { load, tuned }
}

/// Fails if the peers' runtimes differ, because one reference judges them.
fn check_runtimes(tuned: &[Tuned]) {
    let versions = tuned.iter().filter(|tuned| tuned.is_peer).map(|tuned| tuned.fresh[0].first.version.as_str());
    let mut runtimes: Vec<&str> = versions.filter_map(|version| Some(version.split_once(", ")?.1)).collect();
    runtimes.dedup();
    assert!(runtimes.len() < 2, "the peers need the same JAX, not {}", runtimes.join(" and "));
}

impl<'a> Tuner<'a> {
    /// The tool, and the peers for which there is a Python.
    fn all(options: &'a Options) -> Vec<Self> {
        let script = |file, python: &'a Option<PathBuf>| python.as_deref().map(|python| Script { file, python });
        let peers = [
            script(EJKERNEL, &options.peer).map(Self::Ejkernel),
            script(TUNE_JAX, &options.tune_jax).map(Self::TuneJax),
        ];
        std::iter::once(Self::Ours).chain(peers.into_iter().flatten()).collect()
    }

    fn is_peer(&self) -> bool {
        !matches!(self, Self::Ours)
    }

    /// A run with an empty store, and one more on what that left there.
    fn fresh(&self, bench: Bench<'_>, turn: usize, rounds: usize) -> Fresh {
        let store = tool::fresh_folder(bench.options);
        let first = self.run(bench, &format!("fresh-{turn}"), rounds, store.path());
        let has_store = !matches!(self, Self::TuneJax(_));
        Fresh { first, replay: has_store.then(|| self.run(bench, &format!("replay-{turn}"), 0, store.path())) }
    }

    /// Processes that start together, each with an empty store of its own.
    fn ranks(&self, bench: Bench<'_>) -> Vec<Run> {
        let run = |rank| self.run(bench, &format!("rank-{rank}"), 0, tool::fresh_folder(bench.options).path());
        std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || run(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn run(&self, bench: Bench<'_>, name: &str, rounds: usize, store: &Path) -> Run {
        let (script, store) = match self {
            Self::Ours => return run_ours(bench, name, store),
            Self::Ejkernel(script) => (script, Some(store)),
            Self::TuneJax(script) => (script, None),
        };
        let said = script.run(bench.options, rounds, store);
        let of_case = |operation| {
            let (tuned, config) = said.of_case(operation);
            (tuned.seconds, Published { config, is_decided: true, is_stored: tuned.is_stored })
        };
        let of_cases = bench.programs.cases.operations.iter().map(of_case);
        let (seconds, published): (Vec<f64>, Vec<Published>) = of_cases.unzip();
        let own_reference = said.own_reference;
        Run { version: said.version, seconds: seconds.iter().sum(), published, own_reference }
    }
}

fn run_ours(Bench { options, programs, load }: Bench<'_>, name: &str, cache: &Path) -> Run {
    // the load is what it measures for, so it must not wait for its end; the two flags exclude each other
    let is_ignored = options.tune.iter().any(|flag| flag == "--ignore-load");
    let more: &[&str] = if load > 0 && !is_ignored { &["--under-load"] } else { &[] };
    let run = tool::tune(options, &programs.cases, cache, more);
    tool::keep(options, &format!("{name}-load-{load}"), &run.result);
    let published = |operation: &Operation| {
        let said = tool::operation(&run.result, operation);
        let status = said["status"].as_str().unwrap();
        let is_decided = matches!(status, "tuned" | "baseline-kept" | "cached");
        if !is_decided {
            eprintln!("{name}, {}, load {load}: {status}: {}", operation.name, said["reason"]);
        }
        let best = is_decided.then(|| operation.candidate(&said["best"]["config"]).unwrap());
        Published { config: best.unwrap_or(operation.baseline), is_decided, is_stored: status == "cached" }
    };
    let published = programs.cases.operations.iter().map(published).collect();
    Run { version: tool::version(options), seconds: run.seconds, published, own_reference: Vec::new() }
}

/// The tuners beside a number of busy processes.
#[derive(Serialize)]
pub(crate) struct Compared {
    pub(crate) load: usize,
    pub(crate) tuners: Vec<Figures>,
}

/// The five numbers of a tuner, over all cases.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) tuner: String,
    pub(crate) seconds: Summary,
    pub(crate) mean_regret: f64,
    /// Of each fresh run and case.
    pub(crate) regret: Summary,
    pub(crate) top_1: Part,
    /// Of each case.
    pub(crate) flips: Summary,
    /// Decisions that a second process took over from the store; none for a tuner without a store.
    pub(crate) replayed: Option<Part>,
    /// Cases in which all ranks published the same config.
    pub(crate) ranks_agree: Part,
    pub(crate) undecided: Part,
    pub(crate) cases: Vec<Row>,
}

/// One case of a tuner.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    /// Relative to the reference of the tuner's own runtime.
    pub(crate) regret: Summary,
    pub(crate) mean_regret: f64,
    /// Relative to the reference of our plugin's runtime.
    pub(crate) regret_here: Summary,
    pub(crate) top_1: Part,
    pub(crate) flips: f64,
    pub(crate) replayed: Option<Part>,
    pub(crate) ranks_agree: bool,
    /// Fresh runs without a decision, whose config is the baseline.
    pub(crate) undecided: Part,
    pub(crate) best: String,
    pub(crate) configs: Vec<String>,
    pub(crate) configs_of_ranks: Vec<String>,
}

/// A case and what its candidates take.
struct Case<'a> {
    operation: &'a Operation,
    /// In our plugin's runtime.
    here: &'a Judged,
    /// In the peers' runtime; none if no peer ran.
    own: Option<Judged>,
}

/// Some of all.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Part {
    pub(crate) some: usize,
    pub(crate) all: usize,
}

impl Part {
    fn of(each: impl IntoIterator<Item = bool>) -> Self {
        each.into_iter().fold(Self { some: 0, all: 0 }, |Self { some, all }, hit| Self {
            some: some + usize::from(hit),
            all: all + 1,
        })
    }

    fn sum(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self { some: 0, all: 0 }, |sum, part| Self { some: sum.some + part.some, all: sum.all + part.all })
    }
}

impl Runs {
    /// Judges each tuner by the reference of its own runtime under the same load.
    pub(crate) fn judge(&self, programs: &Programs, references: &[Reference]) -> Compared {
        let runs = || self.tuned.iter().flat_map(|tuned| &tuned.fresh).map(|fresh| &fresh.first);
        let own = |operation| peer::own_reference(runs().flat_map(|run| &run.own_reference), operation);
        let cases: Vec<Case<'_>> = programs
            .cases
            .operations
            .iter()
            .zip(references)
            .map(|(operation, reference)| Case { operation, here: &reference.pooled, own: own(operation) })
            .collect();
        let judged = self.tuned.iter().filter(|tuned| !tuned.fresh.is_empty());
        Compared { load: self.load, tuners: judged.map(|tuned| tuned.figures(&cases)).collect() }
    }
}

impl Tuned {
    fn figures(&self, cases: &[Case<'_>]) -> Figures {
        let cases: Vec<Row> = cases.iter().enumerate().map(|(place, case)| self.row(place, case)).collect();
        let regrets: Vec<f64> = cases.iter().flat_map(|row| row.regret.values.iter().copied()).collect();
        let replayed: Option<Vec<Part>> = cases.iter().map(|row| row.replayed).collect();
        Figures {
            tuner: self.fresh[0].first.version.clone(),
            seconds: Summary::of(self.fresh.iter().map(|fresh| fresh.first.seconds).collect()),
            mean_regret: mean(&regrets),
            regret: Summary::of(regrets),
            top_1: Part::sum(cases.iter().map(|row| row.top_1)),
            flips: Summary::of(cases.iter().map(|row| row.flips).filter(|flips| flips.is_finite()).collect()),
            replayed: replayed.map(|parts| Part::sum(parts.into_iter())),
            ranks_agree: Part::of(cases.iter().map(|row| row.ranks_agree)),
            undecided: Part::sum(cases.iter().map(|row| row.undecided)),
            cases,
        }
    }

    fn row(&self, place: usize, Case { operation, here, own }: &Case<'_>) -> Row {
        let config = |run: &Run| run.published[place].config;
        let configs: Vec<usize> = self.fresh.iter().map(|fresh| config(&fresh.first)).collect();
        let ranks: Vec<usize> = self.ranks.iter().map(config).collect();
        let own = own.as_ref().filter(|_| self.is_peer).unwrap_or(here);
        let regrets = |judged: &Judged| configs.iter().map(|&config| judged.regret(config)).collect::<Vec<_>>();
        let brief = |configs: &[usize]| configs.iter().map(|&config| operation.brief(config)).collect();
        Row {
            case: operation.name.clone(),
            mean_regret: mean(&regrets(own)),
            regret: Summary::of(regrets(own)),
            regret_here: Summary::of(regrets(here)),
            top_1: Part::of(regrets(own).into_iter().map(|regret| regret <= TIED)),
            flips: pairs_that_differ(&configs),
            replayed: self.replayed(place),
            ranks_agree: ranks.windows(2).all(|pair| pair[0] == pair[1]),
            undecided: Part::of(self.fresh.iter().map(|fresh| !fresh.first.published[place].is_decided)),
            best: operation.brief(own.best),
            configs: brief(&configs),
            configs_of_ranks: brief(&ranks),
        }
    }

    /// Decisions on a case that the second process found in the store; those that were made count, not the others.
    fn replayed(&self, place: usize) -> Option<Part> {
        let pairs: Option<Vec<(Published, Published)>> = self
            .fresh
            .iter()
            .map(|fresh| Some((fresh.first.published[place], fresh.replay.as_ref()?.published[place])))
            .collect();
        let decided = pairs?.into_iter().filter(|(first, _)| first.is_decided);
        Some(Part::of(decided.map(|(first, replay)| replay.is_stored && replay.config == first.config)))
    }
}
