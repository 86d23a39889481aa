//! Collectives as one picture: bandwidth, waits and skews, each a panel if there is something to draw.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::analysis::collectives::{CollectiveKind, CollectiveMetrics, Collectives, Waits};

use super::picture::{PanelFrame, Picture, draw, escaped};
use super::{bandwidth, marks, skew, waits};

/// Height of a panel with its heading and names.
const HIGH: f64 = 370.0;

/// Draws a panel into its frame.
type DrawPanel<'a> = Box<dyn Fn(&mut Picture, &PanelFrame) + 'a>;

/// Writes the picture. `false` if there is nothing to plot, and nothing is written.
pub fn write_collectives_plot(
    out: &mut dyn Write,
    found: &Collectives<'_>,
    metrics: &CollectiveMetrics,
    straggler_waits: &Waits,
) -> io::Result<bool> {
    let by_size = bandwidth::marks(metrics);
    let waits_by_size = waits::marks(straggler_waits);
    let mut panels: Vec<DrawPanel<'_>> = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    if by_size.is_empty() {
        missing.push("No bandwidth: no collective has a message size.");
    } else {
        panels.push(Box::new(|picture, frame| bandwidth::panel(picture, frame, &by_size)));
    }
    if !waits_by_size.is_empty() {
        panels.push(Box::new(|picture, frame| waits::panel(picture, frame, &waits_by_size)));
    }
    if straggler_waits.kinds.is_empty() {
        missing.push("No waits: no collective has two devices whose clocks can be compared.");
    } else {
        panels.push(Box::new(|picture, frame| waits::distribution(picture, frame, straggler_waits)));
    }
    if metrics.alignment.skews_ps.is_empty() {
        missing.push("No skews: no collective spans all of several devices.");
    } else if !metrics.sizes.is_empty() {
        panels.push(Box::new(|picture, frame| skew::panel(picture, frame, found, metrics)));
    }
    if panels.is_empty() {
        return Ok(false);
    }
    let kinds: BTreeSet<CollectiveKind> = metrics.sizes.iter().map(|row| row.kind).collect();
    out.write_all(&arrange(&panels, &missing, &kinds))?;
    Ok(true)
}

/// Draws the legend, the panels in one or two columns, and why others are missing.
fn arrange(panels: &[DrawPanel<'_>], missing: &[&str], kinds: &BTreeSet<CollectiveKind>) -> Vec<u8> {
    let (columns, wide) = if panels.len() == 1 { (1, 860.0) } else { (2, 560.0) };
    let rows = panels.len().div_ceil(columns) as f64;
    let width = wide * columns as f64;
    // two rows of the legend at most: there are eight kinds
    let above = 82.0;
    let height = above + rows * HIGH + 22.0 * missing.len() as f64 + 12.0;
    let mut picture = Picture::new("Collectives", (width, height));
    picture.legend(kinds.iter().map(|kind| (marks::style(*kind), kind.name())), 54.0);
    for (place, panel) in panels.iter().enumerate() {
        let (left, top) = (wide * (place % columns) as f64, above + HIGH * (place / columns) as f64);
        let frame =
            PanelFrame { left: left + 92.0, top: top + 38.0, right: left + wide - 24.0, bottom: top + HIGH - 62.0 };
        panel(&mut picture, &frame);
    }
    for (row, text) in missing.iter().enumerate() {
        let y = above + rows * HIGH + 22.0 * row as f64 + 6.0;
        draw!(picture, "<text class=\"soft\" x=\"24\" y=\"{y:.0}\">{}</text>\n", escaped(text));
    }
    picture.finish()
}
