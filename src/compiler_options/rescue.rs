//! The first race, of the default against itself, and the choices that are tried if the default does not run.

use super::module::OptionModule;
use super::race::{NONE_RUNS, Rules, VariantRaces, without_rescue};
use super::variant::OptionVariant;
use crate::candidates::{OptionChoice, OptionKind, OptionScope};
use crate::failure::{Failure, FailureKind};
use crate::race::{BASELINE_FAILED, CandidateOutcome, CandidateResult, RaceError, Raced};

/// Rounds of the base against its copy, before anything else.
const FIRST_ROUNDS: u32 = 6;

/// The result of the first race.
pub(super) struct FirstRace {
    /// The race of the variant that runs.
    pub(super) raced: Raced,
    /// The variant that runs, if it is not the base.
    pub(super) rescue: Option<OptionVariant>,
    /// Variants that were tried before and do not run, the base first.
    pub(super) failed: Vec<CandidateResult>,
}

/// The choices that may rescue a default that does not run, the likeliest first. An option that switches something off
/// is likely, because it removes the code that crashes from the program. Options that change arithmetic are excluded,
/// because there is no default to compare with. Options of a process are excluded, because the rescue becomes the
/// baseline, which belongs to one module.
pub(super) fn rescuers(singles: &[OptionVariant], module: &OptionModule) -> Vec<OptionVariant> {
    let choice = |variant: &OptionVariant| variant.choices.first().and_then(|&choice| module.choices.get(choice));
    let known = singles.iter().filter_map(|variant| Some((variant, choice(variant)?)));
    let mends = |choice: &OptionChoice| choice.kind != OptionKind::FastMath && choice.scope == OptionScope::Compile;
    let mut known: Vec<_> = known.filter(|(_, choice)| mends(choice)).collect();
    let switches_off = |value: &serde_json::Value| value == false || value == "";
    known.sort_by_key(|(_, choice)| (choice.kind != OptionKind::Safe, !switches_off(&choice.value)));
    known.into_iter().map(|(variant, _)| variant.clone()).collect()
}

/// Races the base with a second compilation of itself. If it fails, races the rescuers in their order until one runs.
pub(super) fn first_that_runs(
    races: &mut VariantRaces<'_>,
    base: &OptionVariant,
    rescuers: &[OptionVariant],
) -> Result<FirstRace, RaceError> {
    let rules = Rules { stage: "itself", exact: Some(FIRST_ROUNDS), is_fresh: races.options.force, joins: false };
    let (mut failed, mut failures) = (Vec::new(), Vec::new());
    for variant in std::iter::once(base).chain(rescuers) {
        if let Some(why) = races.gives_up(&failures)? {
            return Err(RaceError::Failed(without_rescue(failures, why)));
        }
        match races.race(&[variant.clone(), variant.clone()], &rules) {
            Ok(raced) => {
                if let Some(Failure { kind: FailureKind::WrongOutput, message }) = raced.failures.get(&1) {
                    let message = format!("nondeterministic: compiled twice it computes two results, {message}");
                    return Err(RaceError::Failed(Failure::new(FailureKind::WrongOutput, message)));
                }
                let rescue = (!failed.is_empty()).then(|| variant.clone());
                return Ok(FirstRace { raced, rescue, failed });
            }
            Err(RaceError::Failed(failure)) if is_of_program(&failure) => {
                let message = failure.message.strip_prefix(BASELINE_FAILED).unwrap_or(&failure.message).to_owned();
                let failure = Failure::new(failure.kind, message);
                failures.push(failure.clone());
                failed.push(failed_row(variant, failure));
            }
            Err(ended) => return Err(ended),
        }
    }
    Err(RaceError::Failed(without_rescue(failures, NONE_RUNS)))
}

fn failed_row(variant: &OptionVariant, failure: Failure) -> CandidateResult {
    CandidateResult {
        config: variant.config.clone(),
        outcome: CandidateOutcome::Failed(failure),
        race: None,
        tied_with_best: false,
        dropped: None,
        samples: Vec::new(),
        temporary_bytes: None,
        work: None,
        differences: Vec::new(),
        special_values: Vec::new(),
        reference_errors: Vec::new(),
        compared_by: None,
    }
}

/// Whether other options may help.
fn is_of_program(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Compile | FailureKind::Crash | FailureKind::Timeout | FailureKind::Memory | FailureKind::Execute
    )
}
