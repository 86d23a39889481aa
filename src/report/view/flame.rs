//! A flame graph inside a page: only the frames of the SVG. The page's style and script replace the graph's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::report::flame::{write_difference_graph, write_flame_graph};
use crate::report::format_ns;
use crate::report::html::escape::Text;

/// Writes a figure with the frames, or a line that nothing ran.
pub(super) fn write_flame(
    out: &mut dyn Write,
    title: &str,
    time_ns: &BTreeMap<Vec<String>, f64>,
    keeps_ends: bool,
) -> io::Result<()> {
    let total: f64 = time_ns.values().sum();
    let mut svg = Vec::new();
    if total >= 1.0 {
        write_flame_graph(&mut svg, title, "", time_ns, keeps_ends)?;
    }
    write_figure(out, (title, &format_ns(total)), svg, if keeps_ends { " ends" } else { "" })
}

/// Writes the flame graph of two profiles, coloured by the difference.
pub(super) fn write_difference(
    out: &mut dyn Write,
    title: &str,
    [before, after]: [&BTreeMap<Vec<String>, f64>; 2],
    keeps_ends: bool,
) -> io::Result<()> {
    let [total_before, total]: [f64; 2] = [before, after].map(|time_ns| time_ns.values().sum());
    let mut svg = Vec::new();
    if total >= 1.0 {
        write_difference_graph(&mut svg, title, [before, after], keeps_ends)?;
    }
    let times = format!("{}, before {}", format_ns(total), format_ns(total_before));
    write_figure(out, (title, &times), svg, if keeps_ends { " ends difference" } else { " difference" })
}

fn write_figure(out: &mut dyn Write, (title, beside): (&str, &str), svg: Vec<u8>, classes: &str) -> io::Result<()> {
    writeln!(out, "<figure class=\"graph\"><figcaption>{} <small>{}</small></figcaption>", Text(title), Text(beside))?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    match frames(&svg) {
        Some((frames, height)) => writeln!(
            out,
            "<svg class=\"flame{classes}\" width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"{}\"><g transform=\"translate(0 -{ABOVE})\">{frames}</g></svg>\n<p class=\"told\" aria-hidden=\"true\"></p>",
            Text(title)
        )?,
        None => writeln!(out, "<p class=\"fine\">No module was executed.</p>")?,
    }
    writeln!(out, "</figure>")
}

/// Units above the frames, where a separate graph has its titles, and below them.
const ABOVE: u32 = 58;
const BELOW: u32 = 32;

/// The frames, each with its title, and the height that they need. Names in them are escaped, so all tags are the
/// graph's own.
fn frames(svg: &str) -> Option<(String, u32)> {
    let (_, height) = svg.split_once(" height=\"")?;
    let height: u32 = height.split_once('"')?.0.parse().ok()?;
    let (_, inside) = svg.split_once("<svg id=\"frames\"")?;
    let (_, inside) = inside.split_once('>')?;
    let (inside, _) = inside.split_once("</svg>")?;
    let mut frames = String::with_capacity(inside.len());
    for c in inside.replace("<text ", "<text class=\"frame\" ").chars() {
        match c {
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                // writing to a string does not fail
                let _ = write!(frames, "[U+{:04X}]", u32::from(c));
            }
            c => frames.push(c),
        }
    }
    Some((frames, height.saturating_sub(ABOVE + BELOW)))
}
