//! Arguments of the benchmark.

use std::path::PathBuf;

use autotune_lowered::search::StrategyKind;
use clap::{Parser, ValueEnum};

use super::prior::Prior;

/// Score search strategies on spaces of recorded times (docs/search.md)
#[derive(Debug, Parser)]
#[command(name = "search")]
pub(crate) struct SearchArgs {
    /// Recorded spaces: T4 results or Kernel Tuner caches, gzip or not, or `simulated:NAME` [default: the simulated
    /// ones]
    #[arg(value_name = "SPACE")]
    pub(super) spaces: Vec<PathBuf>,
    /// Runs of each strategy on each space, with the seeds from 0
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) seeds: u64,
    /// Only this strategy: auto, model, random or exhaustive; may be repeated
    #[arg(long = "strategy", value_name = "NAME", value_parser = strategy)]
    pub(super) strategies: Vec<StrategyKind>,
    /// The axis ends where random search is this far from the median to the best time
    #[arg(long, value_name = "SHARE", default_value_t = super::score::CUT_OFF, value_parser = share)]
    pub(super) cut_off: f64,
    /// A Python with Kernel Tuner 1.x: its strategies run on the same spaces, in simulation, at their defaults
    #[arg(long, value_name = "PYTHON")]
    pub(super) peer: Option<PathBuf>,
    /// Only this strategy of Kernel Tuner; may be repeated
    #[arg(long = "peer-strategy", value_name = "NAME", requires = "peer")]
    pub(super) peer_strategies: Vec<String>,
    /// Seconds for all runs of one strategy of Kernel Tuner on one space
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "peer",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) peer_seconds: u32,
    /// Instead of scores: results of compiling in waves on N parts of each space, of 24 to 64 configs
    #[arg(long, value_name = "N", conflicts_with_all = ["strategies", "peer"],
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) waves: Option<u32>,
    /// Instead of scores: what is lost by the rule that chooses among equals, on N such parts
    #[arg(long, value_name = "N", conflicts_with_all = ["strategies", "peer", "waves"],
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) ties: Option<u32>,
    /// What is known of each config besides its parameters, as a compiler's figures would be: six numbers unrelated to
    /// the times, or one of them related to the times
    #[arg(long, value_enum)]
    pub(super) prior: Option<Prior>,
    /// How the figures are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs (docs/search.md)
    Json,
}

fn strategy(text: &str) -> Result<StrategyKind, String> {
    let known = || StrategyKind::ALL.map(StrategyKind::name).join(", ");
    StrategyKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("expected one of {}", known()))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "expected a number between 0 and 1".to_owned())
}
