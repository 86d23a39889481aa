//! A change of the compiler as a page: each call's times with the old one and the new one, its processes as points.

use std::collections::BTreeSet;
use std::io::{self, Write};

use maud::{Markup, html};
use serde::Serialize;

use crate::counted::counted;
use crate::report::differences::differences;
use crate::report::figures::format_interval;
use crate::report::grid::dash;
use crate::report::naming::brief_config;
use crate::report::upgrade::{counts_of_verdicts, origin};
use crate::report::{format_ns, format_part};
use crate::tune::MissedLabel;
use crate::upgrade::{Change, CompilerSide, UpgradeResult, UpgradeVerdict, UpgradedCall};

use super::axis::RatioAxis;
use super::cells::{heading, name_cell, number_cell, status_cell, strips_heading, table};
use super::environment::facts;
use super::escape::prose;
use super::page::{PageFrame, card};
use super::processes::contended_note;
use super::run::{SCRIPT, STYLE, filter};
use super::strip::SampleStrip;

/// The verdict on a label that no recording matches.
const NOT_RECORDED: &str = "not recorded";

/// The content of a page.
#[derive(Debug, Clone, Copy)]
pub struct UpgradeReport<'a> {
    /// The module or the registry whose calls were measured.
    pub subject: &'a str,
    /// What became of them.
    pub result: &'a UpgradeResult,
}

/// What programs find in the page, in the element `data`.
#[derive(Serialize)]
struct UpgradeData<'a> {
    subject: &'a str,
    upgrade: &'a UpgradeResult,
}

/// Writes the page.
pub fn write_upgrade_html(out: &mut dyn Write, report: &UpgradeReport<'_>) -> io::Result<()> {
    let UpgradeReport { subject, result } = *report;
    let mut verdicts: BTreeSet<&str> = result.calls.iter().map(|call| call.verdict.name()).collect();
    if !result.missed.is_empty() {
        verdicts.insert(NOT_RECORDED);
    }
    let rows = [
        ("Device", result.old.device.identity.to_string()),
        ("Old compiler", in_full(&result.old)),
        ("New compiler", in_full(&result.new)),
        ("A change counts from", format_part(result.min_difference)),
        ("Program", result.tool.clone()),
    ];
    let body = html! {
        a.skip href="#operations" { "To the calls" }
        (header(subject, result))
        main #operations {
            (filter("Calls", ("call, config, reason", "Verdict"), &verdicts))
            section.result { (calls(result)) (facts(rows, &result.notes)) }
            (legend())
        }
    };
    let tool = &result.tool;
    let page = PageFrame { title: ("Upgrade", subject), style: STYLE, script: SCRIPT, has_icon: false, tool };
    page.write(out, &body, &UpgradeData { subject, upgrade: result })
}

/// Returns a compiler, its name and what its environment says of it.
fn in_full(side: &CompilerSide) -> String {
    let environment = &side.device.environment;
    let parts = [side.compiler(), side.name.clone(), environment.platform_version.clone()];
    let mut parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.extend(environment.xla_flags.iter().cloned());
    parts.dedup();
    parts.join(", ")
}

/// Draws the title and the few figures that a reader came for.
fn header(subject: &str, result: &UpgradeResult) -> Markup {
    let identity = &result.old.device.identity;
    let alarms = result.calls.iter().filter(|call| call.verdict.is_alarm()).count();
    let beside = if alarms == 0 { "no config has to change".to_owned() } else { counts_of_verdicts(result) };
    let figure = format!("{alarms} of {}", counted(result.calls.len(), "call"));
    html! {
        header {
            p.kind { "Upgrade report" }
            h1 { (subject) }
            @if result.interrupted {
                p.banner role="note" { strong { "Ended early." } " The page shows the calls measured before that." }
            }
            dl.cards {
                (card("To do before the change", &figure, &beside))
                (card("From", &result.old.compiler(), &result.old.name))
                (card("To", &result.new.compiler(), &result.new.name))
                (card("Device", &identity.device_kind, &identity.platform))
            }
        }
    }
}

/// A call and what is drawn of it, on the axis that all of them have in common.
struct CallRow<'a> {
    call: &'a UpgradedCall,
    /// The config in force, and the best one with the new compiler.
    strips: Vec<SampleStrip>,
}

impl<'a> CallRow<'a> {
    fn of(call: &'a UpgradedCall, min_difference: f64) -> Self {
        let strip = |change: &Change, kind, config: &str| {
            let words = format!("{config} in {}", counted(change.processes.len(), "process pair"));
            SampleStrip::of_processes(&change.processes, (change.ratio, change.interval), kind, words)
                .band(1.0 - min_difference, 1.0 + min_difference)
        };
        let in_force = call.change.iter().map(|change| strip(change, "base", "the config in force"));
        let best = call.best.iter().map(|best| strip(&best.to_old, "best", "the best config"));
        Self { call, strips: in_force.chain(best).collect() }
    }
}

/// Draws the table of calls, the worst first.
fn calls(result: &UpgradeResult) -> Markup {
    let mut rows: Vec<CallRow<'_>> = result.calls.iter().map(|call| CallRow::of(call, result.min_difference)).collect();
    rows.sort_by_key(|row| UpgradeVerdict::ALL.iter().position(|verdict| *verdict == row.call.verdict));
    if rows.is_empty() && result.missed.is_empty() {
        return html! { p.nothing { "No call was measured." } };
    }
    let band = [1.0 - result.min_difference, 1.0 + result.min_difference];
    let axis =
        RatioAxis::of(rows.iter().flat_map(|row| &row.strips).flat_map(SampleStrip::extent_of_processes).chain(band));
    let headings = html! {
        @for (index, name) in ["Call", "Verdict", "Old", "New", "New/old", "Best/old"].into_iter().enumerate() {
            (heading(index, name, index > 1))
        }
        (strips_heading("Time with the new compiler over that with the old one, pair by pair", &axis))
    };
    let body = html! {
        @for row in &rows { (table_row(row, &axis)) }
        @for missed in &result.missed { (missed_row(missed)) }
    };
    let changes =
        result.calls.iter().flat_map(|call| call.change.iter().chain(call.best.iter().map(|best| &best.to_old)));
    html! {
        (table("overview upgrade", "Calls", &headings, &body))
        (contended_note(changes.flat_map(|change| &change.processes)))
    }
}

fn table_row(CallRow { call, strips }: &CallRow<'_>, axis: &RatioAxis) -> Markup {
    let verdict = call.verdict.name();
    let times = [("old", call.old_ns), ("new", call.new_ns)];
    let ratios = [("new/old", call.change.as_ref()), ("best/old", call.best.as_ref().map(|best| &best.to_old))];
    html! {
        tr role="row" data-status=(verdict) {
            (name_cell(&call.name(), None, &under(call)))
            (status_cell(verdict, class_of(call.verdict), None))
            @for (name, ns) in times { (number_cell(name, ns, &dash(ns, format_ns), None)) }
            @for (name, change) in ratios { (ratio_cell(name, change)) }
            td role="cell" class="strips" { @for strip in strips { (strip.draw(axis)) } }
        }
    }
}

/// Draws the configs of a call and the reason of its verdict, a line each.
fn under(call: &UpgradedCall) -> Markup {
    let in_force = &call.in_force;
    html! {
        span { "in force" (origin(in_force)) ": " code { (brief_config(&call.call, &in_force.config)) } }
        @if let Some(best) = &call.best {
            span { "best with the new compiler: " code { (differences(&best.config, &in_force.config).0) } }
        }
        span { (prose(&call.reason)) }
    }
}

fn ratio_cell(name: &str, change: Option<&Change>) -> Markup {
    let held = change.map(|change| format_interval(change.interval, 3));
    let ratio = change.map(|change| change.ratio);
    number_cell(name, ratio, &dash(ratio, |ratio| format!("{ratio:.3}")), held.as_deref())
}

fn missed_row(missed: &MissedLabel) -> Markup {
    html! {
        tr role="row" data-status=(NOT_RECORDED) {
            (name_cell(&missed.label.to_string(), None, &prose(&missed.reason)))
            (status_cell(NOT_RECORDED, "failed", None))
            @for name in ["old", "new", "new/old", "best/old"] { (number_cell(name, None, "—", None)) }
            td role="cell" class="strips" {}
        }
    }
}

/// Returns the class that colours a verdict.
fn class_of(verdict: UpgradeVerdict) -> &'static str {
    match verdict {
        alarm if alarm.is_alarm() => "failed",
        UpgradeVerdict::Improved => "tuned",
        UpgradeVerdict::Holds => "kept",
        _ => "open",
    }
}

fn legend() -> Markup {
    html! {
        section.legend {
            h2 { "How to read this" }
            p {
                "A dot is one pair of fresh processes, one with each compiler: the time of the config in force with \
                 the new compiler over its time with the old one. Left of 1× the new compiler is faster. The axis is \
                 logarithmic, and the same for all calls. The upright line is the mean of the pairs, and the line \
                 across it is the mean's interval. A change within the shaded band is too small to count."
            }
            p {
                "The second strip of a call, in blue, is the best config with the new compiler, over the config in \
                 force with the old one. Where it is left of the band, or in it, that config makes up for what the \
                 change costs. The columns Old and New are median times of the config in force in all pairs."
            }
            p {
                "A config holds if it is as fast as before and no other is faster now. Retune says that another \
                 config is faster with the new compiler. If the compiler regressed, no config is as fast as before."
            }
        }
    }
}
