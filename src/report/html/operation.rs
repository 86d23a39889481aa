//! One operation: the verdict, its reason, the candidates, and the time breakdown.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::cache::COMPILER_OPTIONS;
use crate::config::Config;
use crate::counted::counted;
use crate::hlo::Evidence;
use crate::report::date::date;
use crate::report::differences::flat;
use crate::report::figures::format_confidence;
use crate::report::grid::dash;
use crate::report::naming::name_with_direction;
use crate::report::processes::{load_line, processes_line, rivals_line};
use crate::report::roofline::{temporary_memory, work_line};
use crate::report::{format_ns, format_part, format_ratio};
use crate::stats::Interval;
use crate::tune::{CandidateStatus, ConfigTime, OperationResult};

use super::candidates::candidates;
use super::escape::prose;
use super::overview::status_class;
use super::processes::processes;
use super::time_breakdown::bar;

/// Draws an operation's section; `decided_at` is the time of its decision, if there is one.
pub(super) fn section(operation: &OperationResult, number: usize, decided_at: Option<u64>) -> Markup {
    let OperationResult { status, baseline, best, candidates: all, time_breakdown, .. } = operation;
    let name = name_with_direction(operation);
    let facts = facts(operation, decided_at);
    let mut measured = all.iter().filter(|candidate| candidate.status() == CandidateStatus::Measured);
    html! {
        section.operation id={"op-" (number)} aria-labelledby={"op-" (number) "-name"} {
            h3 id={"op-" (number) "-name"} {
                span.op { (name) } " " span class={"badge " (status_class(*status))} { (status.name()) }
            }
            p.verdict { (verdict(operation)) (prose(&sentence(&operation.reason))) }
            @if let Some(best) = best.as_ref().filter(|best| best.config != baseline.config) {
                (changes(baseline, best))
            }
            @if !facts.is_empty() { ul.why { @for fact in facts { li { (prose(&fact)) } } } }
            @if let Some(known) = &operation.confirmation { (processes(known, best.is_some())) }
            @if all.is_empty() {
                p.nothing { "There are no samples of its candidates, so nothing is drawn." }
            } @else {
                (candidates(operation, &name))
                @if measured.all(|candidate| candidate.samples.is_empty()) {
                    p.nothing { "There are no samples: only medians and intervals are drawn." }
                }
            }
            @if time_breakdown.total().as_nanos() > 0 { h4 { "Time breakdown" } (bar(time_breakdown)) }
        }
    }
}

fn verdict(operation: &OperationResult) -> Markup {
    let time = |config: &ConfigTime| dash(config.median_ns, format_ns);
    html! {
        @match &operation.best {
            Some(best) if best.config == operation.baseline.config => {
                strong { "Keep the baseline" } ", " (time(best)) " a call. "
            }
            Some(best) => {
                strong { (dash(operation.speed_up, format_ratio)) " as fast as the baseline" }
                @if let Some(Interval { low, high, confidence, .. }) = operation.speed_up_interval {
                    (format!(" ({low:.2}–{high:.2} at {})", format_confidence(confidence)))
                }
                ": " (time(best)) " instead of " (time(&operation.baseline)) " a call. "
            }
            None => { strong { "Not decided." } " " }
        }
    }
}

/// Returns a reason as a sentence.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim().chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// Says what the best config changes.
fn changes(baseline: &ConfigTime, best: &ConfigTime) -> Markup {
    let (old, new) = (flat(&baseline.config), flat(&best.config));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |of: Option<&String>| of.cloned().unwrap_or_else(|| "unset".to_owned());
    html! {
        ul.changes {
            @for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
                li {
                    code { (name) } " " del { (value(old.get(name))) } " "
                    span aria-hidden="true" { "→" } " " ins { (value(new.get(name))) }
                }
            }
        }
    }
}

/// Says how it was decided, one fact each.
fn facts(operation: &OperationResult, decided_at: Option<u64>) -> Vec<String> {
    let mut facts: Vec<String> = Vec::new();
    facts.extend(found(operation));
    facts.extend(rounds(operation));
    facts.extend(
        operation
            .resolution
            .map(|floor| format!("The noise floor is {}: smaller differences cannot be detected.", format_part(floor))),
    );
    facts.extend(
        [processes_line(operation), rivals_line(operation), load_line(operation)]
            .into_iter()
            .flatten()
            .map(|fact| sentence(&fact)),
    );
    facts.extend([work_line(operation), temporary_memory(operation)].into_iter().flatten().map(|fact| sentence(&fact)));
    let is_other = |config: &&Config| operation.best.as_ref().is_none_or(|best| best.config != **config);
    let others = operation.tie_set.iter().filter(is_other).count();
    if others > 0 {
        facts.push(format!("Tied with {}.", counted(others, "other config")));
        facts.extend(operation.more_time.map(|more| format!("{more}.")));
    }
    facts.extend(operation.drift.map(|drift| {
        let how = if drift >= 0.0 { "slower" } else { "faster" };
        let part = format_part(drift.abs());
        format!("From the first rounds to the last the machine became {part} {how}; paired ratios cancel that.")
    }));
    facts.extend(operation.search.as_ref().map(|search| sentence(&search.to_line())));
    facts.extend(operation.flags.iter().map(|flag| format!("Note: {flag}.")));
    facts.extend(decided_at.and_then(date).map(|date| format!("Decided {date}.")));
    facts
}

/// Says how often it is in the module, and how that is known.
fn found(operation: &OperationResult) -> Option<String> {
    if operation.call.op_id == COMPILER_OPTIONS {
        let module = if operation.how.is_empty() { "the module itself" } else { &operation.how };
        return Some(format!("Options for {module}, which needs no label."));
    }
    let seen = match operation.call_sites {
        _ if operation.occurrences == 0 => return None,
        Some(sites) => format!("It has {}", counted(sites, "call site")),
        None => format!("Its label has {}", counted(operation.occurrences, "stamp")),
    };
    let shows_how = operation.evidence != Evidence::Exact && !operation.how.is_empty();
    let how = if shows_how { format!(", matched {}", operation.how) } else { String::new() };
    Some(format!("{seen} in the module, {} evidence{how}.", operation.evidence))
}

fn rounds(operation: &OperationResult) -> Option<String> {
    let rounds = match (operation.rounds_measured, operation.rounds_kept) {
        (0, 0) => return None,
        (0, kept) => format!("{}, all from earlier runs", counted(kept, "round")),
        (new, 0) => format!("{}, measured in this run", counted(new, "round")),
        (new, kept) => format!("{} measured in this run, {kept} from earlier runs", counted(new, "round")),
    };
    Some(match operation.rounds_set_aside {
        0 => rounds + ".",
        aside => format!("{rounds}; {aside} disturbed and set aside."),
    })
}
