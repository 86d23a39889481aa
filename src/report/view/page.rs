//! The whole page.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::analysis::Summary;
use crate::report::html::card::write_card;
use crate::report::html::escape::{Text, script_json};
use crate::report::html::head::write_head;
use crate::report::plot::write_roofline_plot;
use crate::report::{format_ns, format_part};
use crate::setters;
use crate::tune::AutotuningResult;

use super::compare::AfterPage;
use super::flame::write_flame;
use super::tables::write_tables;
use super::timeline::Timeline;

const STYLE: &str = include_str!("view.css");
const SCRIPT: &str = concat!(include_str!("view.js"), include_str!("flame.js"), include_str!("roofline.js"));

/// What a page shows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
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
    /// A page of a profile. `stacks` are those by source line and those by scope.
    pub fn new(
        subject: &'a str,
        summary: &'a Summary,
        timeline: &'a Timeline,
        [by_source, by_op_name]: [&'a BTreeMap<Vec<String>, f64>; 2],
    ) -> Self {
        Self { subject, summary, timeline, by_source, by_op_name, commands: &[], after: None, results: &[] }
    }
}

setters!(ViewPage<'a> { commands: &'a [(String, String)], after: Option<AfterPage<'a>>, results: &'a [AutotuningResult] });

/// Writes a profile as one page. The same profile gives the same bytes.
pub fn write_view(out: &mut dyn Write, page: &ViewPage<'_>) -> io::Result<()> {
    let icon = "<link rel=\"icon\" href=\"data:,\">\n";
    write_head(out, ("Profile", page.subject), (STYLE, SCRIPT), ("img-src data:; ", icon))?;
    writeln!(out, "<header>\n<p class=\"kind\">Profile</p>\n<h1>{}</h1>", Text(page.subject))?;
    write_cards(out, page.summary)?;
    writeln!(out, "</header>\n<main>\n<section>\n<h2>Timeline</h2>")?;
    for note in page.timeline.notes() {
        writeln!(out, "<p class=\"fine\">{}</p>", Text(&note))?;
    }
    writeln!(
        out,
        "<noscript><p class=\"fine\">The timeline is drawn by a script.</p></noscript>\n\
         <div id=\"tools\" hidden><button type=\"button\" id=\"nearer\">Zoom in</button> <button type=\"button\" id=\"farther\">Zoom out</button> \
         <button type=\"button\" id=\"whole\">Show all</button> <output id=\"range\"></output>\n\
         <search><label>Search <input type=\"search\" id=\"search\" autocomplete=\"off\" spellcheck=\"false\" placeholder=\"name of an event\"></label> \
         <button type=\"button\" id=\"before\" disabled>Previous</button> <button type=\"button\" id=\"next\" disabled>Next</button> \
         <output id=\"hits\" aria-live=\"polite\"></output></search></div>\n\
         <div id=\"lanes\" hidden tabindex=\"0\" role=\"application\" aria-label=\"Timeline: plus and minus zoom, arrows move, 0 shows all\"></div>\n\
         <p class=\"fine\" id=\"help\" hidden>Drag to move. Zoom with + and − or, after clicking the timeline, with the wheel (otherwise \
         Ctrl+wheel); ← and → move, 0 shows all, a double click goes to an event, / goes to the search, Escape lets the wheel scroll the page \
         again. In the search, Enter goes to the next match, Shift+Enter to the previous one, and Escape closes the search.</p>\n\
         <div id=\"tip\" role=\"tooltip\" hidden></div>\n</section>\n<section>\n<h2>Flame graphs</h2>\n\
         <p class=\"fine\">Device time, all devices together, idle time in grey. Click a frame to zoom in, the lowest frame to show all. \
         Tab goes to a graph; ↑ and ↓ go to the frames above and below, ← and → along the row, Home to the lowest; Enter zooms in, Escape or 0 shows all.</p>"
    )?;
    write_flame(out, "By source line", page.by_source, false)?;
    write_flame(out, "By op_name", page.by_op_name, true)?;
    writeln!(out, "</section>")?;
    if let Some(after) = &page.after {
        after.write(out, [page.by_source, page.by_op_name])?;
    }
    write_roofline_plot(out, page.summary)?;
    writeln!(
        out,
        "<section>\n<h2>Summary</h2>\n<p class=\"fine\">1 is the time during which operations ran, 2 is 1 plus idle time \
         inside modules, 3 is from the first start to the last end; shares are parts of 2.</p>"
    )?;
    write_tables(out, page.summary, page.results)?;
    writeln!(out, "</section>\n<section>\n<h2>In other programs</h2>")?;
    for (what, command) in page.commands {
        writeln!(out, "<p>{}</p>\n<pre><code>{}</code></pre>", Text(what), Text(command))?;
    }
    writeln!(
        out,
        "</section>\n</main>\n<footer><p>Written by autotune-lowered {}.</p></footer>",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(
        out,
        "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>",
        script_json(&page.timeline.data)?
    )
}

/// The few figures that most readers want.
fn write_cards(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let sum = |of: fn(&crate::analysis::DeviceRuntime) -> f64| summary.devices.iter().map(of).sum::<f64>();
    let (operations, modules, wall) = (sum(|one| one.operations_ns), sum(|one| one.modules_ns), sum(|one| one.wall_ns));
    let (inside, between) = (sum(|one| one.idle_inside_ns), sum(|one| one.idle_between_ns));
    let part = |of: f64, all: f64| if all > 0.0 { format_part(of / all) } else { "—".to_owned() };
    let executions: u64 = summary.devices.iter().map(|device| device.executions).sum();
    writeln!(out, "<dl class=\"cards\">")?;
    let mut card = |name: &str, figure: &str, beside: &str| write_card(out, name, figure, beside);
    let devices = match summary.devices.len() {
        1 => "on one device".to_owned(),
        many => format!("on {many} devices together"),
    };
    card("Module executions", &format_ns(modules), &format!("{executions} counted, {devices}"))?;
    card("Operations running", &format_ns(operations), &format!("{} of the modules’ time", part(operations, modules)))?;
    card("Idle inside modules", &format_ns(inside), &format!("{} of the modules’ time", part(inside, modules)))?;
    card(
        "Idle between modules",
        &format_ns(between),
        &format!("{} of {} from first to last", part(between, wall), format_ns(wall)),
    )?;
    writeln!(out, "</dl>")
}
