//! The page of a run, or of several.

use std::collections::BTreeSet;
use std::io::{self, Write};

use maud::{Markup, html};
use serde::Serialize;

use crate::cache::CacheKey;
use crate::counted::counted;
use crate::measured_by::Source;
use crate::report::{ExpectedGain, format_ns, format_part, format_ratio};
use crate::tune::{AutotuningResult, OperationResult, PairedSample, ProfiledStep, Status, TimeBreakdown};

use super::environment::{clock_of, environment};
use super::operation;
use super::overview::overview;
use super::page::{PageFrame, card};
use super::time_breakdown::bar;

pub(super) const STYLE: &str = include_str!("report.css");
pub(super) const SCRIPT: &str = include_str!("report.js");

/// The content of a page.
#[derive(Debug, Clone, Copy)]
pub struct HtmlReport<'a> {
    /// What was tuned: a module's name, or a cache folder's.
    pub subject: &'a str,
    /// One per device and timer.
    pub results: &'a [AutotuningResult],
}

impl<'a> HtmlReport<'a> {
    /// Makes a page of the results of one or several runs.
    pub fn new(subject: &'a str, results: &'a [AutotuningResult]) -> Self {
        Self { subject, results }
    }
}

/// The machine-readable data of the page, in the element `data`: each result as `--format json` prints it, and the
/// samples of each candidate.
#[derive(Serialize)]
struct RunData<'a> {
    subject: &'a str,
    results: &'a [AutotuningResult],
    samples: Vec<Vec<Vec<&'a [PairedSample]>>>,
}

/// Writes a run, or several, as one page.
pub fn write_html(out: &mut dyn Write, report: &HtmlReport<'_>) -> io::Result<()> {
    let results = report.results;
    let mut statuses: BTreeSet<&str> = operations(results).map(|operation| operation.status.name()).collect();
    if results.iter().any(|result| !result.missed.is_empty()) {
        statuses.insert("no match");
    }
    let firsts = results.iter().scan(0, |next, result| {
        *next += result.operations.len();
        Some(*next - result.operations.len())
    });
    let body = html! {
        a.skip href="#operations" { "To the operations" }
        (header(report))
        main #operations {
            (filter("Operations", ("operation, config, reason", "Status"), &statuses))
            @for (result, first) in results.iter().zip(firsts) { (section(result, first, results.len() > 1)) }
            (legend())
        }
    };
    let samples = results.iter().map(|result| result.operations.iter().map(samples_of).collect()).collect();
    let tool = results.first().map_or("autotune-lowered", |result| &result.tool);
    let page = PageFrame { title: ("Tuning", report.subject), style: STYLE, script: SCRIPT, has_icon: false, tool };
    page.write(out, &body, &RunData { subject: report.subject, results, samples })
}

fn samples_of(operation: &OperationResult) -> Vec<&[PairedSample]> {
    operation.candidates.iter().map(|candidate| candidate.samples.as_slice()).collect()
}

fn operations(results: &[AutotuningResult]) -> impl Iterator<Item = &OperationResult> {
    results.iter().flat_map(|result| &result.operations)
}

/// Draws the title and the key figures.
fn header(HtmlReport { subject, results }: &HtmlReport<'_>) -> Markup {
    let mut time_breakdown = TimeBreakdown::default();
    operations(results).for_each(|operation| time_breakdown += operation.time_breakdown);
    let has_time = time_breakdown.total().as_nanos() > 0;
    html! {
        header {
            p.kind { "Tuning report" }
            h1 { (subject) }
            @for result in results.iter().filter(|result| result.measured_by.source == Source::Replay) {
                p.banner role="note" {
                    strong { "Replayed data." } " These samples were recorded earlier or made up ("
                    code { (result.measured_by.timer) } "); nothing was timed on a device in this run."
                }
            }
            @if results.iter().any(|result| result.interrupted) {
                p.banner role="note" {
                    strong { "Ended early." } " The page shows the decisions made before that."
                }
            }
            dl.cards {
                (faster_card(results))
                @if let [AutotuningResult { step: Some(step), .. }] = results { (step_card(step)) }
                // the savings of two devices do not add up
                @if let [result] = results { (gain_card(result)) }
                (run_card(results, &time_breakdown))
                (device_card(results))
            }
            @if has_time { section.run { h2 { "Time of this run" } (bar(&time_breakdown)) } }
        }
    }
}

fn has_faster_config(operation: &OperationResult) -> bool {
    operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config)
}

fn faster_card(results: &[AutotuningResult]) -> Markup {
    let faster = operations(results).filter(|operation| has_faster_config(operation)).count();
    let missed: usize = results.iter().map(|result| result.missed.len()).sum();
    let undecided = operations(results).filter(|operation| !operation.status.is_decided()).count();
    let rest = [(undecided, "not decided"), (missed, "without a match")];
    let rest: Vec<String> =
        rest.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let beside = if rest.is_empty() { "with a config other than the baseline's".to_owned() } else { rest.join(", ") };
    let figure = format!("{faster} of {}", operations(results).count() + missed);
    card("Operations with a faster config", &figure, &beside)
}

fn step_card(step: &ProfiledStep) -> Markup {
    let [low, high, decided, labelled] =
        [step.expected_gain_low, step.expected_gain_high, step.decided, step.labelled].map(format_part);
    let beside = format!(
        "less time, {low} to {high} by the intervals; {decided} of its {} is decided here, {labelled} is labelled; \
         profiled in {}",
        format_ns(step.modules_ns),
        step.profile
    );
    card("Expected gain of the step", &format_part(step.expected_gain), &beside)
}

fn gain_card(result: &AutotuningResult) -> Markup {
    let gain = ExpectedGain::of([result]);
    let Some(speed_up) = gain.speed_up() else { return html! {} };
    let (low, high) = (gain.baseline_ns / gain.most_ns, gain.baseline_ns / gain.least_ns);
    let between = match result.operations.iter().any(has_faster_config) {
        true => format!(", {low:.2}–{high:.2} if every call is at the same end of its interval"),
        false => String::new(),
    };
    let uncounted = match gain.uncounted {
        0 => String::new(),
        many => format!("; {many} without a time left out"),
    };
    let (best, baseline) = (format_ns(gain.best_ns), format_ns(gain.baseline_ns));
    let beside = format!("{best} instead of {baseline} if each of them runs once{between}{uncounted}");
    card("Expected gain", &format_ratio(speed_up), &beside)
}

fn run_card(results: &[AutotuningResult], time_breakdown: &TimeBreakdown) -> Markup {
    let rounds: u64 = operations(results).map(|operation| u64::from(operation.rounds_measured)).sum();
    let total = time_breakdown.total().as_nanos() as f64;
    let mut statuses = operations(results).map(|operation| operation.status).peekable();
    if statuses.peek().is_some() && statuses.all(|status| status == Status::Planned) {
        card("This run", "a plan", "nothing was measured")
    } else if total > 0.0 {
        card("This run", &format_ns(total), &format!("{} measured", counted(rounds, "round")))
    } else {
        card("This run", "stored", "nothing was measured: drawn from earlier results")
    }
}

fn device_card(results: &[AutotuningResult]) -> Markup {
    let [result] = results else {
        return card("Devices and timers", &results.len().to_string(), "each in its own section");
    };
    let identity = &result.device.identity;
    let hardware: Vec<String> = identity.hardware.iter().map(|(name, value)| format!("{name} {value}")).collect();
    card("Device", &identity.device_kind, &format!("{}, {}", identity.platform, hardware.join(", ")))
}

/// Draws a heading, and the filter of its table, which the script enables; without the script everything is shown and
/// the filter is hidden. `found` names what the text is searched in, and the choice of a status.
pub(super) fn filter(heading: &str, (found, status): (&str, &str), statuses: &BTreeSet<&str>) -> Markup {
    html! {
        h2 { (heading) }
        form.controls #controls hidden {
            label { "Filter " input #filter type="search" autocomplete="off" placeholder=(found); }
            label {
                (status) " "
                select #status { option value="" { "all" } @for status in statuses { option { (status) } } }
            }
            output #shown aria-live="polite" {}
        }
    }
}

/// Draws the overview of a result, its operations, and where it was measured.
fn section(result: &AutotuningResult, first: usize, one_of_many: bool) -> Markup {
    let decided_at = |operation: &OperationResult| {
        let is_its = |key: &CacheKey| key.call == operation.call && key.direction == operation.direction;
        let (_, entry) = result.entries.iter().find(|(key, _)| is_its(key))?;
        Some(entry.provenance.as_ref()?.decided_at)
    };
    html! {
        section.result {
            @if one_of_many {
                h3.device {
                    (result.device.identity) " "
                    small {
                        (result.measured_by.timer) ", " (clock_of(&result.measured_by.source))
                        @if let Some(speed_up) = ExpectedGain::of([result]).speed_up() {
                            "; expected gain " (format_ratio(speed_up)) " if each operation runs once"
                        }
                    }
                }
            }
            @if result.operations.is_empty() && result.missed.is_empty() {
                p.nothing { "There is nothing to tune." }
            } @else {
                (overview(result, first))
            }
            @for (index, operation) in result.operations.iter().enumerate() {
                (operation::section(operation, first + index, decided_at(operation)))
            }
            (environment(result))
        }
    }
}

fn legend() -> Markup {
    html! {
        section.legend {
            h2 { "How to read this" }
            p {
                "In every round each candidate runs beside the baseline. A dot is one round: the candidate's time over \
                 the baseline's of the same round, on a logarithmic axis, the first round at the top; left of 1× is \
                 faster. The box is the middle half of them, the thin upright line is the median, and the line across \
                 it is the median's interval. The percentage beside an interval is its confidence: how likely such an \
                 interval is to hold the true ratio, at whatever round one looks. Few rounds allow only a low one, and \
                 an interval of a low confidence proves little. Pale dots are disturbed rounds; they do not count. A \
                 candidate is dropped early once it is significantly slower than the leader or takes twice its time, \
                 so it has fewer rounds. Differences below the noise floor do not count, so a candidate may be tied \
                 with the best although its interval is beside 1×. Compiler options run in several races: compare \
                 times only within one. The baseline's own row shows its times over their median: the machine's \
                 changes from round to round, which cancel in pairs. Under \u{201c}Fresh processes\u{201d} a dot is one \
                 process that measured the config beside the baseline after it was chosen, and the upright line is \
                 their mean: a gain that only one process shows is none."
            }
            p {
                "The expected gain adds one call of each operation. Only a profile of the step shows how often the \
                 step calls it, and what else it does; with one, the page shows the expected gain of the whole step."
            }
        }
    }
}
