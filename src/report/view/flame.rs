//! A flame graph inside a page: only the frames of the SVG. The page's style and script replace the graph's own.

use std::collections::BTreeMap;
use std::io;

use maud::{Markup, PreEscaped, html};

use crate::report::flame::{write_difference_graph, write_flame_graph};
use crate::report::format_ns;

/// Draws a figure with the frames, or a line that nothing ran.
pub(super) fn flame(title: &str, time_ns: &BTreeMap<Vec<String>, f64>, keeps_ends: bool) -> io::Result<Markup> {
    let total: f64 = time_ns.values().sum();
    let mut svg = Vec::new();
    if total >= 1.0 {
        write_flame_graph(&mut svg, title, "", time_ns, keeps_ends)?;
    }
    figure(title, &format_ns(total), svg, if keeps_ends { "flame ends" } else { "flame" })
}

/// Draws the flame graph of two profiles, coloured by the difference.
pub(super) fn difference(
    title: &str,
    [before, after]: [&BTreeMap<Vec<String>, f64>; 2],
    keeps_ends: bool,
) -> io::Result<Markup> {
    let [total_before, total]: [f64; 2] = [before, after].map(|time_ns| time_ns.values().sum());
    let mut svg = Vec::new();
    if total >= 1.0 {
        write_difference_graph(&mut svg, title, [before, after], keeps_ends)?;
    }
    let times = format!("{}, before {}", format_ns(total), format_ns(total_before));
    figure(title, &times, svg, if keeps_ends { "flame ends difference" } else { "flame difference" })
}

fn figure(title: &str, beside: &str, svg: Vec<u8>, class: &str) -> io::Result<Markup> {
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    Ok(html! {
        figure.graph {
            figcaption { (title) " " small { (beside) } }
            @if let Some((frames, height)) = frames(&svg) {
                svg class=(class) width="100%" height=(height) role="img" aria-label=(title) {
                    g transform={"translate(0 -" (ABOVE) ")"} { (frames) }
                }
                p.told aria-hidden="true" {}
            } @else {
                p.fine { "No module was executed." }
            }
        }
    })
}

/// Units above the frames, where a separate graph has its titles, and below them.
const ABOVE: u32 = 58;
const BELOW: u32 = 32;

/// Returns the frames, each with its title, and the height that they need. Names in them are escaped, so all tags are
/// the graph's own.
fn frames(svg: &str) -> Option<(PreEscaped<String>, u32)> {
    let (_, height) = svg.split_once(" height=\"")?;
    let height: u32 = height.split_once('"')?.0.parse().ok()?;
    let (_, inside) = svg.split_once("<svg id=\"frames\"")?;
    let (_, inside) = inside.split_once('>')?;
    let (inside, _) = inside.split_once("</svg>")?;
    let frames = inside.replace("<text ", "<text class=\"frame\" ");
    Some((PreEscaped(frames), height.saturating_sub(ABOVE + BELOW)))
}
