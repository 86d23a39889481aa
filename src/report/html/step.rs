//! A step as a page: what each tuned call gains alone and in the step, side by side.

use std::collections::BTreeSet;
use std::io::{self, Write};

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::measured_by::MeasuredBy;
use crate::prove::{CallEffect, Effect, ProvenSet, StepVerdict};
use crate::report::differences::differences;
use crate::report::figures::format_interval;
use crate::report::grid::dash;
use crate::report::prove::ratio;
use crate::report::{format_ns, format_part};

use super::cells::{heading, name_cell, number_cell, status_cell, table, text_cell};
use super::environment::{clock_of, facts};
use super::page::{PageFrame, card};
use super::run::{SCRIPT, STYLE, filter};

/// What `prove --format json` printed.
#[derive(Debug)]
pub struct StepReport<'a> {
    subject: &'a str,
    document: Value,
    step: MeasuredStep,
}

/// The document as far as it is drawn.
#[derive(Debug, Deserialize)]
struct MeasuredStep {
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
struct StepData<'a> {
    subject: &'a str,
    step: &'a Value,
}

impl<'a> StepReport<'a> {
    /// Reads a document; `subject` is what the page calls it.
    ///
    /// # Errors
    /// If it is not what `prove` prints.
    pub fn read(subject: &'a str, document: Value) -> serde_json::Result<Self> {
        let step = MeasuredStep::deserialize(&document)?;
        Ok(Self { subject, document, step })
    }
}

/// Writes the page.
pub fn write_step_html(out: &mut dyn Write, StepReport { subject, document, step }: &StepReport<'_>) -> io::Result<()> {
    let verdicts: BTreeSet<&str> = step.calls.iter().map(|call| call.in_step.verdict.name()).collect();
    let MeasuredBy { timer, source, metric, .. } = &step.measured_by;
    let rows = [
        ("Device", step.device.identity.to_string()),
        ("Plugin", step.device.environment.plugin.clone().unwrap_or_default()),
        ("Timer", timer.clone()),
        ("Clock", format!("{source}: {}", clock_of(source))),
        ("A duration is", metric.as_str().to_owned()),
        ("Program", step.tool.clone()),
    ];
    let body = html! {
        a.skip href="#operations" { "To the calls" }
        (header(subject, step))
        main #operations {
            (filter("Calls", ("call, config, reason", "Verdict"), &verdicts))
            section.result { (calls(&step.calls)) (facts(rows, &step.notes)) }
            section.legend {
                h2 { "How to read this" }
                p {
                    "Alone is the baseline's time of a call over that of its tuned config, as tuning measured it. In \
                     the step is the time of the whole step with only this call at its baseline, over that with all \
                     calls tuned: above 1× the call makes the step faster. All intervals in the step hold together. A \
                     call that is not separated was not raced by itself, or not long enough."
                }
            }
        }
    };
    let page = PageFrame { title: ("Step", subject), style: STYLE, script: SCRIPT, has_icon: false, tool: &step.tool };
    page.write(out, &body, &StepData { subject, step: document })
}

/// Draws the title and the few figures that a reader came for.
fn header(subject: &str, MeasuredStep { device, step, baseline_ns, calls, proven, .. }: &MeasuredStep) -> Markup {
    let of_step = |effect: &Effect| {
        let interval = effect.interval.map_or_else(String::new, |held| format!("{}, ", format_interval(held, 3)));
        format!("{interval}{}", effect.verdict.name())
    };
    let (figure, beside) = match proven {
        Some(ProvenSet { calls: some, in_step, .. }) => (
            dash(in_step.speed_up, ratio),
            format!("{} of {} tuned; {}", some.len(), counted(calls.len(), "call"), of_step(in_step)),
        ),
        None => ("nothing".to_owned(), "no set of calls is proven to make this step faster".to_owned()),
    };
    html! {
        header {
            p.kind { "Step report" }
            h1 { (subject) }
            dl.cards {
                (card("The step with all tuned", &dash(step.speed_up, ratio), &of_step(step)))
                (card("Proven", &figure, &beside))
                (card("The step at its baselines", &dash(*baseline_ns, format_ns), "median time"))
                (card("Device", &device.identity.device_kind, &device.identity.platform))
            }
        }
    }
}

fn calls(calls: &[CallEffect]) -> Markup {
    let has_shares = calls.iter().any(|call| call.call.share.is_some());
    let columns = ["Call", "In the step", "Share", "Alone", "Part in the step", "Proven"];
    let columns = columns.into_iter().filter(|name| has_shares || *name != "Share");
    let is_number = |name: &str| ["Share", "Alone", "Part in the step"].contains(&name);
    let headings = html! { @for (index, name) in columns.enumerate() { (heading(index, name, is_number(name))) } };
    let rows = html! { @for effect in calls { (row(effect, has_shares)) } };
    table("overview", "Calls", &headings, &rows)
}

fn row(CallEffect { call, in_step, is_proven, .. }: &CallEffect, has_shares: bool) -> Markup {
    let verdict = in_step.verdict.name();
    let failure = in_step.failure.as_ref().map(ToString::to_string);
    let under = html! { "use " (differences(&call.tuned, &call.baseline).0) };
    let [alone_held, in_step_held] =
        [call.alone_interval, in_step.interval].map(|held| held.map(|held| format_interval(held, 3)));
    html! {
        tr role="row" data-status=(verdict) {
            (name_cell(&call.call.to_string(), None, &under))
            (status_cell(verdict, class_of(in_step.verdict), failure.as_deref()))
            @if has_shares { (number_cell("share", call.share, &dash(call.share, format_part), None)) }
            (number_cell("alone", call.alone, &dash(call.alone, ratio), alone_held.as_deref()))
            (number_cell("in-step", in_step.speed_up, &dash(in_step.speed_up, ratio), in_step_held.as_deref()))
            (text_cell("proven", if *is_proven { "in the set" } else { "left out" }))
        }
    }
}

/// Returns the class that colours a verdict.
fn class_of(verdict: StepVerdict) -> &'static str {
    match verdict {
        StepVerdict::Gains => "tuned",
        StepVerdict::Loses | StepVerdict::Failed => "failed",
        StepVerdict::NotSeparated => "open",
        StepVerdict::WithinNoise | StepVerdict::VariesByProcess | StepVerdict::NoEffect | StepVerdict::PutBack => {
            "kept"
        }
    }
}
