//! A step as a page: what each tuned call gains alone and in the step, side by side.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::measured_by::MeasuredBy;
use crate::prove::{CallEffect, Effect, ProvenSet, StepVerdict};
use crate::report::differences::differences;
use crate::report::{format_ns, format_part};
use crate::stats::Interval;

use super::card::write_card;
use super::environment::{clock_of, write_facts};
use super::escape::{Text, script_json};
use super::head::write_head;
use super::page::{SCRIPT, STYLE, write_filter};

/// What `prove --format json` printed.
#[derive(Debug)]
pub struct StepReport<'a> {
    subject: &'a str,
    document: Value,
    found: Found,
}

/// The document as far as it is drawn.
#[derive(Debug, Deserialize)]
struct Found {
    tool: String,
    device: DeviceFingerprint,
    measured_by: MeasuredBy,
    step: Effect,
    baseline_ns: Option<f64>,
    calls: Vec<CallEffect>,
    proven: Option<ProvenSet>,
    notes: Vec<String>,
}

/// What programs find in the page, in the element `data`.
#[derive(Serialize)]
struct Data<'a> {
    subject: &'a str,
    step: &'a Value,
}

impl<'a> StepReport<'a> {
    /// Reads a document; `subject` is what the page calls it.
    ///
    /// # Errors
    /// If it is not what `prove` prints.
    pub fn read(subject: &'a str, document: Value) -> serde_json::Result<Self> {
        let found = Found::deserialize(&document)?;
        Ok(Self { subject, document, found })
    }
}

/// Writes the page.
pub fn write_step_html(out: &mut dyn Write, report: &StepReport<'_>) -> io::Result<()> {
    let (subject, document, found) = (report.subject, &report.document, &report.found);
    write_head(out, ("Step", subject), (STYLE, SCRIPT), ("", ""))?;
    writeln!(out, "<a class=\"skip\" href=\"#operations\">To the calls</a>")?;
    write_figures(report, out)?;
    writeln!(out, "<main id=\"operations\">")?;
    let verdicts: BTreeSet<&str> = found.calls.iter().map(|call| call.in_step.verdict.name()).collect();
    write_filter(out, "Calls", ("call, config, reason", "Verdict"), verdicts)?;
    writeln!(out, "<section class=\"result\">")?;
    write_calls(&found.calls, out)?;
    let MeasuredBy { timer, source, metric, .. } = &found.measured_by;
    let rows = [
        ("Device", found.device.identity.to_string()),
        ("Plugin", found.device.environment.plugin.clone().unwrap_or_default()),
        ("Timer", timer.clone()),
        ("Clock", format!("{source}: {}", clock_of(source))),
        ("A duration is", metric.as_str().to_owned()),
        ("Program", found.tool.clone()),
    ];
    write_facts(&rows.map(|(name, value)| (name.to_owned(), value)), &found.notes, out)?;
    writeln!(
        out,
        "</section>\n<section class=\"legend\"><h2>How to read this</h2><p>Alone is the baseline's time of a call over \
         that of its tuned config, as tuning measured it. In the step is the time of the whole step with only this call \
         at its baseline, over that with all calls tuned: above 1× the call makes the step faster. All intervals in the \
         step hold together. A call that is not separated was not raced by itself, or not long \
         enough.</p></section>\n</main>\n<footer><p>Written by {}.</p></footer>",
        Text(&found.tool)
    )?;
    let data = Data { subject, step: document };
    writeln!(out, "<script type=\"application/json\" id=\"data\">{}</script>", script_json(&data)?)?;
    writeln!(out, "<script>{SCRIPT}</script>\n</body>\n</html>")
}

/// The title and the few figures that a reader came for.
fn write_figures(report: &StepReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Found { device, step, baseline_ns, calls, proven, .. } = &report.found;
    writeln!(
        out,
        "<header>\n<p class=\"kind\">Step report</p>\n<h1>{}</h1>\n<dl class=\"cards\">",
        Text(report.subject)
    )?;
    let of_step = |effect: &Effect| {
        let interval = effect.interval.map_or_else(String::new, |held| format!("{}, ", interval(held)));
        format!("{interval}{}", effect.verdict.name())
    };
    write_card(out, "The step with all tuned", &ratio(step.speed_up), &of_step(step))?;
    let (figure, beside) = match proven {
        Some(ProvenSet { calls: some, in_step, .. }) => (
            ratio(in_step.speed_up),
            format!("{} of {} tuned; {}", some.len(), counted(calls.len(), "call"), of_step(in_step)),
        ),
        None => ("nothing".to_owned(), "no set of calls is proven to make this step faster".to_owned()),
    };
    write_card(out, "Proven", &figure, &beside)?;
    let time = baseline_ns.map_or_else(|| "—".to_owned(), format_ns);
    write_card(out, "The step at its baselines", &time, "median time")?;
    write_card(out, "Device", &device.identity.device_kind, &device.identity.platform)?;
    writeln!(out, "</dl>\n</header>")
}

fn write_calls(calls: &[CallEffect], out: &mut dyn Write) -> io::Result<()> {
    let has_shares = calls.iter().any(|call| call.call.share.is_some());
    write!(
        out,
        "<table class=\"overview\" role=\"table\"><caption class=\"unseen\">Calls</caption><thead role=\"rowgroup\"><tr role=\"row\">"
    )?;
    let columns =
        [("Call", ""), ("In the step", ""), ("Share", "n"), ("Alone", "n"), ("Part in the step", "n"), ("Proven", "")];
    let columns = columns.into_iter().filter(|(name, _)| has_shares || *name != "Share");
    for (index, (name, kind)) in columns.enumerate() {
        let (class, kind) = if kind == "n" { (" class=\"number\"", "number") } else { ("", "text") };
        write!(
            out,
            "<th role=\"columnheader\" scope=\"col\"{class} data-column=\"{index}\" data-kind=\"{kind}\"><span class=\"label\">{name}</span></th>"
        )?;
    }
    writeln!(out, "</tr></thead><tbody role=\"rowgroup\">")?;
    for effect in calls {
        let CallEffect { call, in_step, is_proven, .. } = effect;
        let verdict = in_step.verdict.name();
        let failure = in_step
            .failure
            .as_ref()
            .map_or_else(String::new, |failure| format!("<small>{}</small>", Text(&failure.to_string())));
        write!(
            out,
            "<tr role=\"row\" data-status=\"{verdict}\"><th role=\"rowheader\" scope=\"row\" data-value=\"{name}\"><span class=\"op\">{name}</span>\
             <small>use {under}</small></th><td role=\"cell\" data-value=\"{verdict}\"><span class=\"badge {}\">{verdict}</span>{failure}</td>",
            class_of(in_step.verdict),
            name = Text(&call.call.to_string()),
            under = Text(&differences(&call.tuned, &call.baseline).0),
        )?;
        if has_shares {
            write_number(out, "share", call.share, &call.share.map_or_else(|| "—".to_owned(), format_part), None)?;
        }
        write_number(out, "alone", call.alone, &ratio(call.alone), call.alone_interval)?;
        write_number(out, "in-step", in_step.speed_up, &ratio(in_step.speed_up), in_step.interval)?;
        let proven = if *is_proven { "in the set" } else { "left out" };
        writeln!(out, "<td role=\"cell\" data-name=\"proven\" data-value=\"{proven}\">{proven}</td></tr>")?;
    }
    writeln!(out, "</tbody></table>")
}

fn write_number(
    out: &mut dyn Write,
    name: &str,
    value: Option<f64>,
    text: &str,
    held: Option<Interval>,
) -> io::Result<()> {
    let value = value.map_or_else(String::new, |value| format!(" data-value=\"{value}\""));
    let held = held.map_or_else(String::new, |held| format!(" <small>{}</small>", interval(held)));
    write!(out, "<td role=\"cell\" class=\"number\" data-name=\"{name}\"{value}>{text}{held}</td>")
}

/// The class that colours a verdict.
fn class_of(verdict: StepVerdict) -> &'static str {
    match verdict {
        StepVerdict::Gains => "tuned",
        StepVerdict::Loses | StepVerdict::Failed => "failed",
        StepVerdict::NotSeparated => "open",
        StepVerdict::WithinNoise | StepVerdict::NoEffect | StepVerdict::PutBack => "kept",
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "—".to_owned(), |ratio| format!("{ratio:.3}×"))
}

fn interval(held: Interval) -> String {
    format!("{:.3}–{:.3}", held.low, held.high)
}
