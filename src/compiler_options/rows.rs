//! What is known about each set. A set is in several races, and its row has the numbers of the last one.

use std::collections::BTreeMap;

use super::variant::OptionVariant;
use super::verdict::FinalVerdict;
use crate::config::Config;
use crate::race::{CandidateOutcome, CandidateRace, CandidateResult, RaceStage, Raced};
use crate::stats::Interval;

/// The rows, by the set's config.
pub(super) type SetRows = BTreeMap<Config, CandidateResult>;

/// Takes the rows of a race over, except those of the candidates in `without`.
pub(super) fn take_rows(rows: &mut SetRows, raced: &Raced, stage: Option<RaceStage>, without: &[usize]) {
    let of_base = raced.rows.first().and_then(CandidateResult::times).map(|times| times.median_ns);
    let race = stage.zip(of_base).map(|(stage, baseline_ns)| CandidateRace { stage, baseline_ns });
    for (index, row) in raced.rows.iter().enumerate() {
        // a race that ends at once measures nothing, so known rows stay
        let is_known = row.times().is_some() || row.failure().is_some();
        if !without.contains(&index) && (is_known || !rows.contains_key(&row.config)) {
            let mut row = row.clone();
            row.race = race.filter(|_| row.times().is_some());
            row.differences = raced.differences.get(&index).cloned().unwrap_or_default();
            // who is best is known when all races are over
            row.tied_with_best = false;
            rows.insert(row.config.clone(), row);
        }
    }
}

/// Gives a finalist's row the ratio and the interval that it was judged by.
pub(super) fn judged_by(row: &mut CandidateResult, ratio: f64, interval: Interval) {
    if let CandidateOutcome::Measured(times) = &mut row.outcome {
        (times.ratio, times.interval) = (ratio, interval);
    }
}

/// Gives the finalists' rows what the verdict says. Returns the sets that are as fast as the winner.
pub(super) fn take_verdict(rows: &mut SetRows, variants: &[OptionVariant], verdict: &FinalVerdict) -> Vec<Config> {
    for (finalist, ratio, interval) in &verdict.ratios {
        let row = variants.get(finalist.candidate).and_then(|variant| rows.get_mut(&variant.config));
        row.into_iter().for_each(|row| judged_by(row, *ratio, *interval));
    }
    let tied = verdict.tied.iter().filter_map(|&candidate| variants.get(candidate));
    let tied: Vec<Config> = tied.map(|variant| variant.config.clone()).collect();
    for config in &tied {
        rows.entry(config.clone()).and_modify(|row| row.tied_with_best = true);
    }
    let winner = verdict.winner.and_then(|winner| variants.get(winner));
    tied.into_iter().filter(|config| winner.is_some_and(|winner| winner.config != *config)).collect()
}
