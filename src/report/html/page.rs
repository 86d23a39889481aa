//! The whole page.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;

use crate::counted::counted;
use crate::measured_by::Source;
use crate::report::{Gain, format_ns, format_part, format_ratio};
use crate::tune::{AutotuningResult, OperationResult, PairedSample, Status, TimeBreakdown};

use super::card::write_card;
use super::environment::{clock_of, write_environment};
use super::escape::{Text, script_json};
use super::head::write_head;
use super::operation::write_operation;
use super::overview::write_overview;
use super::time_breakdown::write_time_breakdown;

pub(super) const STYLE: &str = include_str!("report.css");
pub(super) const SCRIPT: &str = include_str!("report.js");

/// The content of a page.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HtmlReport<'a> {
    /// What was tuned: a module's name, or a cache folder's.
    pub subject: &'a str,
    /// One per device and timer.
    pub results: &'a [AutotuningResult],
}

impl<'a> HtmlReport<'a> {
    /// A page of results of one or several runs.
    pub fn new(subject: &'a str, results: &'a [AutotuningResult]) -> Self {
        Self { subject, results }
    }
}

/// The machine-readable data of the page, in the element `data`: each result as `--format json` prints it, and the
/// samples of each candidate.
#[derive(Serialize)]
struct Data<'a> {
    subject: &'a str,
    results: &'a [AutotuningResult],
    samples: Vec<Vec<Vec<&'a [PairedSample]>>>,
}

/// Writes a run, or several, as one page.
pub fn write_html(out: &mut dyn Write, report: &HtmlReport<'_>) -> io::Result<()> {
    write_head(out, ("Tuning", report.subject), (STYLE, SCRIPT), ("", ""))?;
    writeln!(out, "<a class=\"skip\" href=\"#operations\">To the operations</a>")?;
    write_figures(report, out)?;
    writeln!(out, "<main id=\"operations\">")?;
    write_controls(report, out)?;
    let mut first = 0;
    for result in report.results {
        write_result(result, first, report.results.len() > 1, out)?;
        first += result.operations.len();
    }
    write_legend(out)?;
    writeln!(out, "</main>\n<footer><p>Written by {}.</p></footer>", Text(&tools(report.results)))?;
    let samples = report.results.iter().map(|result| result.operations.iter().map(samples_of).collect()).collect();
    let data = Data { subject: report.subject, results: report.results, samples };
    writeln!(out, "<script type=\"application/json\" id=\"data\">{}</script>", script_json(&data)?)?;
    writeln!(out, "<script>{SCRIPT}</script>\n</body>\n</html>")
}

fn samples_of(operation: &OperationResult) -> Vec<&[PairedSample]> {
    operation.candidates.iter().map(|candidate| candidate.samples.as_slice()).collect()
}

fn tools(results: &[AutotuningResult]) -> String {
    results.first().map_or_else(|| "autotune-lowered".to_owned(), |result| result.tool.clone())
}

fn operations<'a>(report: &HtmlReport<'a>) -> impl Iterator<Item = &'a OperationResult> + use<'a> {
    report.results.iter().flat_map(|result| &result.operations)
}

/// The title and the key figures.
fn write_figures(report: &HtmlReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<header>\n<p class=\"kind\">Tuning report</p>\n<h1>{}</h1>", Text(report.subject))?;
    for result in report.results.iter().filter(|result| result.measured_by.source == Source::Replay) {
        writeln!(
            out,
            "<p class=\"banner\" role=\"note\"><strong>Replayed data.</strong> These samples were recorded earlier or made up (<code>{}</code>); \
             nothing was timed on a device in this run.</p>",
            Text(&result.measured_by.timer)
        )?;
    }
    if report.results.iter().any(|result| result.interrupted) {
        writeln!(
            out,
            "<p class=\"banner\" role=\"note\"><strong>Ended early.</strong> The page shows the decisions made before \
             that.</p>"
        )?;
    }
    let all: Vec<&OperationResult> = operations(report).collect();
    let is_faster = |operation: &&&OperationResult| {
        operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config)
    };
    let faster = all.iter().filter(is_faster).count();
    let missed: usize = report.results.iter().map(|result| result.missed.len()).sum();
    let undecided = all.iter().filter(|operation| !operation.status.is_decided()).count();
    writeln!(out, "<dl class=\"cards\">")?;
    let mut card = |name: &str, figure: &str, beside: &str| write_card(out, name, figure, beside);
    let mut rest: Vec<String> = Vec::new();
    rest.extend((undecided > 0).then(|| format!("{undecided} not decided")));
    rest.extend((missed > 0).then(|| format!("{missed} without a match")));
    let beside = if rest.is_empty() { "with a config other than the baseline's".to_owned() } else { rest.join(", ") };
    card("Operations with a faster config", &format!("{faster} of {}", all.len() + missed), &beside)?;
    if let [AutotuningResult { step: Some(step), .. }] = report.results {
        let beside = format!(
            "less time, {} to {} by the intervals; {} of its {} is decided here, {} is labelled; profiled in {}",
            format_part(step.expected_gain_low),
            format_part(step.expected_gain_high),
            format_part(step.decided),
            format_ns(step.modules_ns),
            format_part(step.labelled),
            step.profile
        );
        card("Expected gain of the step", &format_part(step.expected_gain), &beside)?;
    }
    let gain = Gain::of(report.results);
    // the savings of two devices do not add up
    if let Some(speed_up) = gain.speed_up().filter(|_| report.results.len() == 1) {
        let (low, high) = (gain.baseline_ns / gain.most_ns, gain.baseline_ns / gain.least_ns);
        let between = if faster > 0 {
            format!(", {low:.2}–{high:.2} if every call is at the same end of its interval")
        } else {
            String::new()
        };
        let uncounted = match gain.uncounted {
            0 => String::new(),
            many => format!("; {many} without a time left out"),
        };
        let (best, baseline) = (format_ns(gain.best_ns), format_ns(gain.baseline_ns));
        let beside = format!("{best} instead of {baseline} if each of them runs once{between}{uncounted}");
        card("Expected gain", &format_ratio(speed_up), &beside)?;
    }
    let mut time_breakdown = TimeBreakdown::default();
    all.iter().for_each(|operation| time_breakdown += operation.time_breakdown);
    let rounds: u64 = all.iter().map(|operation| u64::from(operation.rounds_measured)).sum();
    let total = time_breakdown.total().as_nanos() as f64;
    let is_planned = !all.is_empty() && all.iter().all(|operation| operation.status == Status::Planned);
    if is_planned {
        card("This run", "a plan", "nothing was measured")?;
    } else if total > 0.0 {
        card("This run", &format_ns(total), &format!("{} measured", counted(rounds, "round")))?;
    } else {
        card("This run", "stored", "nothing was measured: drawn from earlier results")?;
    }
    if let [result] = report.results {
        let identity = &result.device.identity;
        let hardware: Vec<String> = identity.hardware.iter().map(|(name, value)| format!("{name} {value}")).collect();
        card("Device", &identity.device_kind, &format!("{}, {}", identity.platform, hardware.join(", ")))?;
    } else {
        card("Devices and timers", &report.results.len().to_string(), "each in its own section")?;
    }
    writeln!(out, "</dl>")?;
    if total > 0.0 {
        write!(out, "<section class=\"run\"><h2>Time of this run</h2>")?;
        write_time_breakdown(&time_breakdown, out)?;
        writeln!(out, "</section>")?;
    }
    writeln!(out, "</header>")
}

fn write_controls(report: &HtmlReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut statuses: BTreeSet<&str> = operations(report).map(|operation| operation.status.name()).collect();
    if report.results.iter().any(|result| !result.missed.is_empty()) {
        statuses.insert("no match");
    }
    write_filter(out, "Operations", ("operation, config, reason", "Status"), statuses)
}

/// A heading, and the filter of its table, which the script enables; without the script everything is shown and the
/// filter is hidden. `found` names what the text is searched in, and the choice of a status.
pub(super) fn write_filter(
    out: &mut dyn Write,
    heading: &str,
    (found, status): (&str, &str),
    statuses: BTreeSet<&str>,
) -> io::Result<()> {
    write!(
        out,
        "<h2>{heading}</h2>\n<form class=\"controls\" id=\"controls\" hidden><label>Filter <input type=\"search\" id=\"filter\" autocomplete=\"off\" \
         placeholder=\"{found}\"></label><label>{status} <select id=\"status\"><option value=\"\">all</option>"
    )?;
    for status in statuses {
        write!(out, "<option>{status}</option>")?;
    }
    writeln!(out, "</select></label><output id=\"shown\" aria-live=\"polite\"></output></form>")
}

fn write_result(result: &AutotuningResult, first: usize, one_of_many: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<section class=\"result\">")?;
    if one_of_many {
        let gain = Gain::of([result]).speed_up().map_or_else(String::new, |speed_up| {
            format!("; expected gain {} if each operation runs once", format_ratio(speed_up))
        });
        writeln!(
            out,
            "<h3 class=\"device\">{} <small>{}, {}{gain}</small></h3>",
            Text(&result.device.identity.to_string()),
            Text(&result.measured_by.timer),
            clock_of(&result.measured_by.source)
        )?;
    }
    if result.operations.is_empty() && result.missed.is_empty() {
        writeln!(out, "<p class=\"nothing\">There is nothing to tune.</p>")?;
    } else {
        write_overview(result, first, out)?;
    }
    for (index, operation) in result.operations.iter().enumerate() {
        let entry =
            result.entries.iter().find(|(key, _)| key.call == operation.call && key.direction == operation.direction);
        let decided_at = entry.and_then(|(_, entry)| entry.provenance.as_ref()).map(|provenance| provenance.decided_at);
        write_operation(operation, first + index, decided_at, out)?;
    }
    write_environment(result, out)?;
    writeln!(out, "</section>")
}

fn write_legend(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<section class=\"legend\"><h2>How to read this</h2><p>In every round each candidate runs beside the \
         baseline. A dot is one round: the candidate's time over the baseline's of the same round, on a logarithmic \
         axis, the first round at the top; left of 1× is faster. The box is the middle half of them, the thin upright \
         line is the median, and the line across it is the median's interval. The percentage beside an interval is its \
         confidence: how likely such an interval is to hold the true ratio, at whatever round one looks. Few rounds \
         allow only a low one, and an interval of a low confidence proves little. Pale dots are disturbed rounds; they \
         do not count. A candidate is dropped early once it is significantly slower than the leader or takes twice \
         its time, so it has fewer rounds. Differences below the noise floor do not count, so a candidate may be tied \
         with the best although its interval is beside 1×. Compiler options run in several races: compare times \
         only within one. The baseline's own row shows its times over \
         their median: the machine's changes from round to round, which cancel in pairs.</p><p>The expected gain adds \
         one call of each operation. Only a profile of the step shows how often the step calls it, and what else it \
         does; with one, the page shows the expected gain of the whole step.</p></section>"
    )
}
