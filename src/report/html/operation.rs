//! One operation: the verdict, its reason, the candidates, and the time breakdown.

use std::io::{self, Write};

use crate::cache::COMPILER_OPTIONS;
use crate::counted::counted;
use crate::hlo::Evidence;
use crate::report::date::date;
use crate::report::differences::flat;
use crate::report::figures::format_confidence;
use crate::report::roofline::{temporary_memory, work_line};
use crate::report::{format_ns, format_part, format_ratio};
use crate::tune::{CandidateResult, CandidateStatus, ConfigTime, OperationResult, Searched};

use super::candidates::write_candidates;
use super::escape::{Prose, Text};
use super::overview::{name_of, status_class};
use super::time_breakdown::write_time_breakdown;

/// Writes an operation's section; `decided_at` is the time of its decision, if there is one.
pub(super) fn write_operation(
    operation: &OperationResult,
    number: usize,
    decided_at: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = name_of(operation);
    let status = operation.status;
    writeln!(
        out,
        "<section class=\"operation\" id=\"op-{number}\" aria-labelledby=\"op-{number}-name\">\
         <h3 id=\"op-{number}-name\"><span class=\"op\">{}</span> <span class=\"badge {}\">{}</span></h3>",
        Text(&name),
        status_class(status),
        status.name()
    )?;
    write_verdict(operation, out)?;
    if let Some(best) = operation.best.as_ref().filter(|best| best.config != operation.baseline.config) {
        write_changes(&operation.baseline, best, out)?;
    }
    write_facts(operation, decided_at, out)?;
    if operation.candidates.is_empty() {
        writeln!(out, "<p class=\"nothing\">There are no samples of its candidates, so nothing is drawn.</p>")?;
    } else {
        write_candidates(operation, &name, out)?;
        let is_measured = |candidate: &&CandidateResult| candidate.status() == CandidateStatus::Measured;
        if operation.candidates.iter().filter(is_measured).all(|candidate| candidate.samples.is_empty()) {
            writeln!(out, "<p class=\"nothing\">There are no samples: only medians and intervals are drawn.</p>")?;
        }
    }
    if operation.time_breakdown.total().as_nanos() > 0 {
        write!(out, "<h4>Time breakdown</h4>")?;
        write_time_breakdown(&operation.time_breakdown, out)?;
    }
    writeln!(out, "</section>")
}

fn write_verdict(operation: &OperationResult, out: &mut dyn Write) -> io::Result<()> {
    let time = |config: &ConfigTime| config.median_ns.map_or_else(|| "—".to_owned(), format_ns);
    write!(out, "<p class=\"verdict\">")?;
    match &operation.best {
        Some(best) if best.config == operation.baseline.config => {
            write!(out, "<strong>Keep the baseline</strong>, {} a call. ", time(best))?;
        }
        Some(best) => {
            let speed_up = operation.speed_up.map_or_else(|| "—".to_owned(), format_ratio);
            write!(out, "<strong>{speed_up} as fast as the baseline</strong>")?;
            if let Some(interval) = operation.speed_up_interval {
                let confidence = format_confidence(interval.confidence);
                write!(out, " ({:.2}–{:.2} at {confidence})", interval.low, interval.high)?;
            }
            write!(out, ": {} instead of {} a call. ", time(best), time(&operation.baseline))?;
        }
        None => write!(out, "<strong>Not decided.</strong> ")?,
    }
    write!(out, "{}", Prose(&sentence(&operation.reason)))?;
    writeln!(out, "</p>")
}

/// A reason as a sentence.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim().chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// What the best config changes.
fn write_changes(baseline: &ConfigTime, best: &ConfigTime, out: &mut dyn Write) -> io::Result<()> {
    let (old, new) = (flat(&baseline.config), flat(&best.config));
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    write!(out, "<ul class=\"changes\">")?;
    for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
        let value = |of: Option<&String>| of.map_or_else(|| "unset".to_owned(), |value| Text(value).to_string());
        write!(
            out,
            "<li><code>{}</code> <del>{}</del> <span aria-hidden=\"true\">→</span> <ins>{}</ins></li>",
            Text(name),
            value(old.get(name)),
            value(new.get(name))
        )?;
    }
    writeln!(out, "</ul>")
}

/// How it was decided, one fact each.
fn write_facts(operation: &OperationResult, decided_at: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let mut facts: Vec<String> = Vec::new();
    if operation.call.op_id == COMPILER_OPTIONS {
        let module = if operation.how.is_empty() { "the module itself" } else { &operation.how };
        facts.push(format!("Options for {module}, which needs no label."));
    } else if operation.occurrences > 0 {
        let times = |count: u64, what: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), what);
        let seen = match operation.call_sites {
            Some(sites) => format!("It has {}", times(sites, "call site")),
            None => format!("Its label has {}", times(operation.occurrences, "stamp")),
        };
        let shows_how = operation.evidence != Evidence::Exact && !operation.how.is_empty();
        let how = if shows_how { format!(", matched {}", operation.how) } else { String::new() };
        facts.push(format!("{seen} in the module, {} evidence{how}.", operation.evidence));
    }
    let (new, kept) = (operation.rounds_measured, operation.rounds_kept);
    if new > 0 || kept > 0 {
        let mut rounds = match (new, kept) {
            (0, _) => format!("{}, all from earlier runs", counted(kept, "round")),
            (_, 0) => format!("{}, measured in this run", counted(new, "round")),
            _ => format!("{} measured in this run, {kept} from earlier runs", counted(new, "round")),
        };
        match operation.rounds_set_aside {
            0 => {}
            aside => rounds += &format!("; {aside} disturbed and set aside"),
        }
        facts.push(rounds + ".");
    }
    if let Some(resolution) = operation.resolution {
        facts.push(format!("The noise floor is {}: smaller differences cannot be detected.", format_part(resolution)));
    }
    facts.extend([work_line(operation), temporary_memory(operation)].into_iter().flatten().map(|fact| sentence(&fact)));
    let others = operation
        .tie_set
        .iter()
        .filter(|config| operation.best.as_ref().is_none_or(|best| best.config != **config))
        .count();
    if others > 0 {
        facts.push(format!("Tied with {others} other config{}.", if others == 1 { "" } else { "s" }));
        facts.extend(operation.more_time.map(|more| format!("{more}.")));
    }
    if let Some(drift) = operation.drift {
        let how = if drift >= 0.0 { "slower" } else { "faster" };
        facts.push(format!(
            "From the first rounds to the last the machine became {} {how}; paired ratios cancel that.",
            format_part(drift.abs())
        ));
    }
    facts.extend(operation.search.as_ref().map(Searched::to_line).map(|line| sentence(&line)));
    facts.extend(operation.flags.iter().map(|flag| format!("Note: {flag}.")));
    facts.extend(decided_at.and_then(date).map(|date| format!("Decided {date}.")));
    if facts.is_empty() {
        return Ok(());
    }
    write!(out, "<ul class=\"why\">")?;
    for fact in facts {
        write!(out, "<li>{}</li>", Prose(&fact))?;
    }
    writeln!(out, "</ul>")
}
