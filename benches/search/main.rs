//! Scores of the search strategies: simulated searches on recorded spaces, compared with Kernel Tuner's.
//!
//! `cargo bench --bench search -- [SPACE…] [--seeds N] [--prior misleading] [--peer PYTHON] [--format json]`;
//! docs/search.md has the score and the figures. An error is one line on stderr: exit code 2 for an argument, 4 for a
//! file or a peer that cannot be used.

#![allow(clippy::print_stderr)]

mod args;
mod parts;
mod peer;
mod prior;
mod recorded;
mod score;
mod simulate;
mod ties;
mod waves;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use autotune_lowered::report::{Grid, write_json};
use autotune_lowered::search::{StrategyKind, StrategyPlan, TrialOutcome, WaveRules, start};
use clap::Parser;
use rayon::prelude::*;
use serde::Serialize;

use args::{Format, SearchArgs};
use recorded::{Recorded, analytic, read};
use score::Scale;
use simulate::{Simulated, simulate};

/// Why there are no figures.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Fault {
    fn input(message: String) -> Self {
        Self { code: 4, message }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self { code: 1, message: format!("cannot write: {error}") }
    }
}

fn main() -> ExitCode {
    match run(std::env::args_os(), &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{}", fault.message);
            ExitCode::from(fault.code)
        }
    }
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    axis: &'static str,
    cut_off: f64,
    seeds: u64,
    spaces: Vec<SpaceRow>,
    strategies: Vec<StrategyRow>,
    best_peer: Option<String>,
    ratio_to_best_peer: Option<f64>,
}

#[derive(Serialize)]
struct SpaceRow {
    space: String,
    format: &'static str,
    configs: usize,
    failed: usize,
    optimum: f64,
    median: f64,
    axis_start: usize,
    axis_end: usize,
}

#[derive(Serialize)]
struct StrategyRow {
    strategy: String,
    tool: String,
    /// Over all spaces; absent if one of them has no score.
    mean_score: Option<f64>,
    ms_per_evaluation: Option<f64>,
    scores: Vec<ScoreRow>,
}

#[derive(Serialize)]
struct ScoreRow {
    space: String,
    score: Option<f64>,
    below_random: bool,
    ms_per_evaluation: Option<f64>,
    failure: Option<String>,
}

/// A space with its scale.
struct Bench {
    name: String,
    recorded: Recorded,
    scale: Scale,
}

/// The whole benchmark: from arguments, of which the first is the program's name, to figures.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> Result<(), Fault> {
    let args = SearchArgs::try_parse_from(arguments)
        .map_err(|error| Fault { code: u8::try_from(error.exit_code()).unwrap_or(2), message: error.to_string() })?;
    let args = &args;
    let benches = benches(args)?;
    let none =
        |bench: &Bench| Fault::input(format!("`{}` has no part of 24 to 64 configs; name a larger space", bench.name));
    if let Some(parts) = args.ties {
        let row = |bench: &Bench| ties::row(&bench.name, &bench.recorded, parts).ok_or_else(|| none(bench));
        let rows = benches.iter().map(row).collect::<Result<Vec<_>, _>>()?;
        return match args.format {
            Format::Json => Ok(write_json(out, &rows)?),
            Format::Table => Ok(ties::table(&rows, out)?),
        };
    }
    if let Some(parts) = args.waves {
        let rules = WaveRules::new(4);
        let row = |bench: &Bench| {
            waves::row(&bench.name, &bench.recorded, parts, &rules, args.prior).ok_or_else(|| none(bench))
        };
        let rows = benches.iter().map(row).collect::<Result<Vec<_>, _>>()?;
        return match args.format {
            Format::Json => Ok(write_json(out, &rows)?),
            Format::Table => Ok(waves::table(&rows, out)?),
        };
    }
    let mut strategies = Vec::new();
    let kinds = if args.strategies.is_empty() { &StrategyKind::ALL[..] } else { &args.strategies };
    for &kind in kinds {
        let scores = benches.iter().map(|bench| own_score(bench, kind, args)).collect();
        let tool = format!("autotune-lowered {}", env!("CARGO_PKG_VERSION"));
        strategies.push(StrategyRow::new(kind.name().to_owned(), tool, scores));
    }
    if let Some(python) = &args.peer {
        strategies.extend(peer_rows(python, args, &benches)?);
    }
    let best_peer = strategies
        .iter()
        .filter(|row| row.tool.starts_with("kernel_tuner"))
        .filter_map(|row| Some((row.strategy.clone(), row.mean_score?)));
    let best_peer = best_peer.max_by(|a, b| a.1.total_cmp(&b.1));
    let auto = strategies.iter().find(|row| row.strategy == StrategyKind::Auto.name()).and_then(|row| row.mean_score);
    let ratio = auto.zip(best_peer.as_ref()).map(|(auto, (_, peer))| auto / peer).filter(|ratio| *ratio > 0.0);
    let document = Document {
        schema: 1,
        axis: "evaluations",
        cut_off: args.cut_off,
        seeds: args.seeds,
        spaces: benches.iter().map(Bench::row).collect(),
        strategies,
        best_peer: best_peer.map(|(name, _)| name),
        ratio_to_best_peer: ratio,
    };
    match args.format {
        Format::Json => Ok(write_json(out, &document)?),
        Format::Table => table(&document, out),
    }
}

fn benches(args: &SearchArgs) -> Result<Vec<Bench>, Fault> {
    let mut benches = Vec::new();
    let simulated: Vec<_> = analytic().iter().map(|space| Path::new(space.name)).collect();
    let named: Vec<&Path> = args.spaces.iter().map(AsRef::as_ref).collect();
    for path in if named.is_empty() { simulated } else { named } {
        let cannot = |error: &dyn std::fmt::Display| Fault::input(format!("cannot use `{}`: {error}", path.display()));
        let own = analytic().iter().find(|space| Path::new(space.name) == path);
        let recorded = match own {
            Some(space) => space.recorded().map_err(|error| cannot(&error))?,
            None => {
                let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
                read(file).map_err(|error| cannot(&error))?
            }
        };
        let scale = Scale::new(recorded.times(), args.cut_off).map_err(|error| cannot(&error))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = name.trim_end_matches(".gz").trim_end_matches(".json").to_owned();
        benches.push(Bench { name, recorded, scale });
    }
    Ok(benches)
}

impl Bench {
    fn row(&self) -> SpaceRow {
        SpaceRow {
            space: self.name.clone(),
            format: self.recorded.format,
            configs: self.recorded.space.count(),
            failed: self.recorded.space.count() - self.recorded.times().count(),
            optimum: self.scale.optimum,
            median: self.scale.median,
            axis_start: self.scale.start,
            axis_end: self.scale.end,
        }
    }

    fn scored(&self, runs: &[Vec<Option<f64>>], seconds: f64, evaluations: usize) -> ScoreRow {
        let score = self.scale.score(runs);
        ScoreRow {
            space: self.name.clone(),
            score: Some(score),
            below_random: score < 0.0,
            ms_per_evaluation: Some(seconds * 1e3 / evaluations.max(1) as f64),
            failure: None,
        }
    }

    fn failed(&self, reason: String) -> ScoreRow {
        ScoreRow {
            space: self.name.clone(),
            score: None,
            below_random: false,
            ms_per_evaluation: None,
            failure: Some(reason),
        }
    }
}

impl StrategyRow {
    fn new(strategy: String, tool: String, scores: Vec<ScoreRow>) -> Self {
        let mean = |of: fn(&ScoreRow) -> Option<f64>| {
            let values: Option<Vec<f64>> = scores.iter().map(of).collect();
            values.filter(|values| !values.is_empty()).map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        let (mean_score, ms_per_evaluation) = (mean(|row| row.score), mean(|row| row.ms_per_evaluation));
        Self { strategy, tool, mean_score, ms_per_evaluation, scores }
    }
}

fn own_score(bench: &Bench, kind: StrategyKind, args: &SearchArgs) -> ScoreRow {
    let search = |seed: u64| -> Simulated {
        let times = (0..bench.recorded.space.count()).map(|point| match bench.recorded.outcome(point) {
            TrialOutcome::Time(time) => Some(time),
            TrialOutcome::Failed => None,
        });
        let figures = args.prior.map(|prior| prior.figures(times, seed)).unwrap_or_default();
        let plan = StrategyPlan::new(&bench.recorded.space, seed).budget(Some(bench.scale.end)).figures(&figures);
        simulate(&mut *start(kind, &plan), &bench.recorded, bench.scale.end)
    };
    let runs: Vec<Simulated> = (0..args.seeds).into_par_iter().map(search).collect();
    let seconds = runs.iter().map(|run| run.own.as_secs_f64()).sum();
    let evaluations = runs.iter().map(|run| run.asked.len()).sum();
    let best: Vec<_> = runs.into_iter().map(|run| run.best).collect();
    bench.scored(&best, seconds, evaluations)
}

fn peer_rows(python: &Path, args: &SearchArgs, benches: &[Bench]) -> Result<Vec<StrategyRow>, Fault> {
    let mut rows: Vec<(String, String, Vec<ScoreRow>)> = Vec::new();
    for bench in benches {
        let answer = peer::run(python, args, &bench.recorded, bench.scale.end);
        let answer = answer.map_err(|error| Fault::input(format!("`{}`: {error}", bench.name)))?;
        for runs in answer.runs {
            let score = match &runs.failure {
                Some(failure) => bench.failed(failure.clone()),
                None => {
                    let best: Vec<_> = runs.asked.iter().map(|asked| best_so_far(&bench.recorded, asked)).collect();
                    bench.scored(&best, runs.seconds, runs.asked.iter().map(Vec::len).sum())
                }
            };
            match rows.iter_mut().find(|(name, ..)| *name == runs.strategy) {
                Some((.., scores)) => scores.push(score),
                None => rows.push((runs.strategy, format!("kernel_tuner {}", answer.version), vec![score])),
            }
        }
    }
    Ok(rows.into_iter().map(|(strategy, tool, scores)| StrategyRow::new(strategy, tool, scores)).collect())
}

fn best_so_far(recorded: &Recorded, asked: &[usize]) -> Vec<Option<f64>> {
    let next = |best: &mut Option<f64>, &point: &usize| {
        if let TrialOutcome::Time(time) = recorded.outcome(point) {
            *best = Some(best.map_or(time, |best| best.min(time)));
        }
        Some(*best)
    };
    asked.iter().scan(None, next).collect()
}

fn table(document: &Document, out: &mut dyn Write) -> Result<(), Fault> {
    let mut spaces = Grid::new(&["space", "format", ">configs", ">failed", ">best", ">median", ">evaluations"]);
    for row in &document.spaces {
        spaces.row([
            row.space.clone(),
            row.format.to_owned(),
            row.configs.to_string(),
            row.failed.to_string(),
            format!("{:.4}", row.optimum),
            format!("{:.4}", row.median),
            format!("{}–{}", row.axis_start, row.axis_end),
        ]);
    }
    spaces.write(out)?;
    writeln!(out)?;
    let mut scores = Grid::new(&["strategy", "tool", ">mean score", ">ms/evaluation", "by space"]);
    for row in &document.strategies {
        let number = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
        let by_space = row.scores.iter().map(|score| match (&score.failure, score.score) {
            (None, Some(value)) if score.below_random => format!("{value:.3} (below random)"),
            (None, value) => number(value),
            (Some(failure), _) => failure.clone(),
        });
        let by_space: Vec<String> = by_space.collect();
        scores.row([
            row.strategy.clone(),
            row.tool.clone(),
            number(row.mean_score),
            number(row.ms_per_evaluation),
            by_space.join("  "),
        ]);
    }
    scores.write(out)?;
    if let (Some(peer), Some(ratio)) = (&document.best_peer, document.ratio_to_best_peer) {
        writeln!(out, "\nauto: {ratio:.2} times the mean score of Kernel Tuner's best, `{peer}`")?;
    }
    let (cut_off, seeds) = (document.cut_off, document.seeds);
    writeln!(out, "\naxis: evaluations up to a share of {cut_off} between median and best; {seeds} seeds")?;
    Ok(())
}
