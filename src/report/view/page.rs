//! The whole page.

use std::collections::BTreeMap;
use std::io::{self, Write};

use maud::{Markup, html};

use crate::analysis::{DeviceRuntime, Summary};
use crate::report::html::page::{PageFrame, card};
use crate::report::plot::roofline_plot;
use crate::report::{format_ns, format_part};
use crate::setters;
use crate::tune::AutotuningResult;

use super::compare::AfterPage;
use super::flame::flame;
use super::tables::tables;
use super::timeline::Timeline;

const STYLE: &str = include_str!("view.css");
const SCRIPT: &str = concat!(include_str!("view.js"), include_str!("flame.js"), include_str!("roofline.js"));

/// What a page shows.
#[derive(Debug, Clone, Copy)]
pub struct ViewPage<'a> {
    /// What was captured: a file's or folder's name.
    pub subject: &'a str,
    /// Where its time went.
    pub summary: &'a Summary,
    /// The events to draw.
    pub timeline: &'a Timeline,
    /// Nanoseconds by stack of source lines.
    pub by_source: &'a BTreeMap<Vec<String>, f64>,
    /// Nanoseconds by scopes of the `op_name`.
    pub by_op_name: &'a BTreeMap<Vec<String>, f64>,
    /// Commands that show the same in other programs: what for, and the command.
    pub commands: &'a [(String, String)],
    /// A second profile, after a change.
    pub after: Option<AfterPage<'a>>,
    /// The tuning results of the calls.
    pub results: &'a [AutotuningResult],
}

impl<'a> ViewPage<'a> {
    /// Makes a page of a profile. `stacks` are those by source line and those by scope.
    pub fn new(
        subject: &'a str,
        summary: &'a Summary,
        timeline: &'a Timeline,
        [by_source, by_op_name]: [&'a BTreeMap<Vec<String>, f64>; 2],
    ) -> Self {
        Self { subject, summary, timeline, by_source, by_op_name, commands: &[], after: None, results: &[] }
    }
}

setters!(ViewPage<'a> {
    commands: &'a [(String, String)], after: Option<AfterPage<'a>>, results: &'a [AutotuningResult]
});

/// Writes a profile as one page. The same profile gives the same bytes.
pub fn write_view(out: &mut dyn Write, page: &ViewPage<'_>) -> io::Result<()> {
    let body = html! {
        header { p.kind { "Profile" } h1 { (page.subject) } (cards(page.summary)) }
        main {
            (timeline(page.timeline))
            section {
                h2 { "Flame graphs" }
                p.fine {
                    "Device time, all devices together, idle time in grey. Click a frame to zoom in, the lowest frame \
                     to show all. Tab goes to a graph; ↑ and ↓ go to the frames above and below, ← and → along the \
                     row, Home to the lowest; Enter zooms in, Escape or 0 shows all."
                }
                (flame("By source line", page.by_source, false)?)
                (flame("By op_name", page.by_op_name, true)?)
            }
            @if let Some(after) = &page.after { (after.section([page.by_source, page.by_op_name])?) }
            (roofline_plot(page.summary))
            section {
                h2 { "Summary" }
                p.fine {
                    "1 is the time during which operations ran, 2 is 1 plus idle time inside modules, 3 is from the \
                     first start to the last end; shares are parts of 2."
                }
                (tables(page.summary, page.results))
            }
            section {
                h2 { "In other programs" }
                @for (what, command) in page.commands { p { (what) } pre { code { (command) } } }
            }
        }
    };
    let tool = concat!("autotune-lowered ", env!("CARGO_PKG_VERSION"));
    let frame = PageFrame { title: ("Profile", page.subject), style: STYLE, script: SCRIPT, has_icon: true, tool };
    frame.write(out, &body, &page.timeline.data)
}

/// Frames the timeline, which the script draws.
fn timeline(timeline: &Timeline) -> Markup {
    html! {
        section {
            h2 { "Timeline" }
            @for note in timeline.notes() { p.fine { (note) } }
            noscript { p.fine { "The timeline is drawn by a script." } }
            div #tools hidden {
                button #nearer type="button" { "Zoom in" } " "
                button #farther type="button" { "Zoom out" } " "
                button #whole type="button" { "Show all" } " "
                output #range {} " "
                search {
                    label {
                        "Search "
                        input #search type="search" autocomplete="off" spellcheck="false"
                            placeholder="name of an event";
                    } " "
                    button #before type="button" disabled { "Previous" } " "
                    button #next type="button" disabled { "Next" } " "
                    output #hits aria-live="polite" {}
                }
            }
            div #lanes hidden tabindex="0" role="application"
                aria-label="Timeline: plus and minus zoom, arrows move, 0 shows all" {}
            p.fine #help hidden {
                "Drag to move. Zoom with + and − or, after clicking the timeline, with the wheel (otherwise \
                 Ctrl+wheel); ← and → move, 0 shows all, a double click goes to an event, / goes to the search, Escape \
                 lets the wheel scroll the page again. In the search, Enter goes to the next match, Shift+Enter to the \
                 previous one, and Escape closes the search."
            }
            div #tip role="tooltip" hidden {}
        }
    }
}

/// Draws the few figures that most readers want.
fn cards(summary: &Summary) -> Markup {
    let sum = |of: fn(&DeviceRuntime) -> f64| summary.devices.iter().map(of).sum::<f64>();
    let (operations, modules, wall) = (sum(|one| one.operations_ns), sum(|one| one.modules_ns), sum(|one| one.wall_ns));
    let (inside, between) = (sum(|one| one.idle_inside_ns), sum(|one| one.idle_between_ns));
    let part = |of: f64, all: f64| if all > 0.0 { format_part(of / all) } else { "—".to_owned() };
    let executions: u64 = summary.devices.iter().map(|device| device.executions).sum();
    let devices = match summary.devices.len() {
        1 => "on one device".to_owned(),
        many => format!("on {many} devices together"),
    };
    let of_modules = |ns: f64| format!("{} of the modules’ time", part(ns, modules));
    let of_wall = format!("{} of {} from first to last", part(between, wall), format_ns(wall));
    html! {
        dl.cards {
            (card("Module executions", &format_ns(modules), &format!("{executions} counted, {devices}")))
            (card("Operations running", &format_ns(operations), &of_modules(operations)))
            (card("Idle inside modules", &format_ns(inside), &of_modules(inside)))
            (card("Idle between modules", &format_ns(between), &of_wall))
        }
    }
}
