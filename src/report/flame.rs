//! A flame graph as SVG that needs nothing else: its script is inside, for zoom and search.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::color::PaletteMap;
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

/// Colours idle time grey and every other frame by its name.
fn palette(time_ns: &BTreeMap<Vec<String>, f64>) -> io::Result<PaletteMap> {
    let mut palette = String::new();
    for frame in time_ns.keys().filter_map(|stack| stack.first()).filter(|frame| frame.starts_with("[idle")) {
        palette += &format!("{}->rgb(190,190,190)\n", one_frame(frame));
    }
    PaletteMap::from_reader(&mut palette.as_bytes())
}

/// Draws stacks by their nanoseconds, outermost frame at the bottom. A name that is too long for its frame loses its
/// end, or its beginning if that is less informative. The same stacks give the same bytes.
pub fn write_flame_graph(
    out: &mut dyn Write,
    title: &str,
    subtitle: &str,
    time_ns: &BTreeMap<Vec<String>, f64>,
    keeps_ends: bool,
) -> io::Result<()> {
    let counted = time_ns.iter().filter(|(_, ns)| ns.round() >= 1.0);
    let lines = counted.map(|(stack, ns)| format!("{} {:.0}", frames(stack), ns.round())).collect();
    draw(out, (title, subtitle), lines, &mut palette(time_ns)?, keeps_ends)
}

/// Draws the same for the second of two profiles: frames that take more time than in the first are red, those that take
/// less are blue. Stacks that only the first has are not drawn.
pub(super) fn write_difference_graph(
    out: &mut dyn Write,
    title: &str,
    [before, after]: [&BTreeMap<Vec<String>, f64>; 2],
    keeps_ends: bool,
) -> io::Result<()> {
    let counted = after.iter().filter(|(_, ns)| ns.round() >= 1.0);
    let before_ns = |stack: &Vec<String>| before.get(stack).map_or(0.0, |ns| ns.round());
    let lines =
        counted.map(|(stack, ns)| format!("{} {:.0} {:.0}", frames(stack), before_ns(stack), ns.round())).collect();
    draw(out, (title, ""), lines, &mut palette(after)?, keeps_ends)
}

fn frames(stack: &[String]) -> String {
    let frames: Vec<String> = stack.iter().map(|frame| one_frame(frame)).collect();
    frames.join(";")
}

fn draw(
    out: &mut dyn Write,
    (title, subtitle): (&str, &str),
    mut lines: Vec<String>,
    palette: &mut PaletteMap,
    keeps_ends: bool,
) -> io::Result<()> {
    lines.sort_unstable();
    let mut options = Options::default();
    options.title = one_frame(title);
    options.subtitle = Some(one_frame(subtitle));
    "ns".clone_into(&mut options.count_name);
    "Frame:".clone_into(&mut options.name_type);
    options.palette_map = Some(palette);
    if !keeps_ends {
        options.text_truncate_direction = TextTruncateDirection::Right;
    }
    // colours by name: a frame has the same one in every graph
    options.hash = true;
    options.deterministic = true;
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// Returns a frame's name without separators and characters that XML forbids.
fn one_frame(name: &str) -> String {
    let is_unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    let name: String = name.chars().map(|c| if is_unfit(c) { ' ' } else { c }).collect();
    // `;` separates frames, and a number after a blank would be read as a second count
    let name = name.replace(';', ",").trim().to_owned();
    match name.rsplit_once(' ') {
        Some((before, last)) if last.starts_with(|c: char| c.is_ascii_digit()) => format!("{before}\u{a0}{last}"),
        _ => name,
    }
}
