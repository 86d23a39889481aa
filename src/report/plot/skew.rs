//! How late each device ends collectives that all devices end together.

use crate::analysis::collectives::{Clocks, CollectiveMetrics, Collectives};
use crate::report::figures::signed_ns;

use super::picture::{PanelFrame, Picture, draw, escaped};

/// Maximum number of devices named below the axis.
const MOST_NAMES: usize = 16;

/// Writes a round time without trailing zeros: `−20 µs`.
fn label(ns: f64) -> String {
    let text = signed_ns(ns, "");
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            if number == "0" { number.to_owned() } else { format!("{number} {unit}") }
        }
        _ => text,
    }
}

/// Returns a round step; at most five of them reach this far.
fn step_to(farthest: f64) -> f64 {
    let power = 10_f64.powf((farthest.max(1e-3) / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| step * 5.0 >= farthest).unwrap_or(farthest)
}

pub(super) fn panel(picture: &mut Picture, frame: &PanelFrame, found: &Collectives<'_>, metrics: &CollectiveMetrics) {
    let alignment = &metrics.alignment;
    let skews: Vec<f64> = alignment.skews_ps.iter().map(|&ps| ps as f64 / 1e3).collect();
    let farthest = skews.iter().fold(0.0_f64, |most, ns| most.max(ns.abs()));
    let step = step_to(farthest);
    let end = step * (farthest / step).ceil().max(1.0);
    let y = |ns: f64| frame.y((ns / end + 1.0) / 2.0);
    let ticks = (end / step).round() as i32;
    for tick in -ticks..=ticks {
        let ns = f64::from(tick) * step;
        picture.line(frame, y(ns), &label(ns));
    }
    let taken = match alignment.clocks {
        Clocks::Recorded => "not taken off",
        Clocks::Host => "each host’s taken off before waits",
        Clocks::Device => "taken off before waits",
    };
    picture.frame(frame, &format!("Skew of each device’s ends, {taken}"), "device", "end, later than the mean");
    draw!(picture, "<path class=\"frame\" d=\"M{} {:.1}H{}\"/>\n", frame.left, y(0.0), frame.right);
    let wide = (frame.right - frame.left) / skews.len().max(1) as f64;
    let each = skews.len().div_ceil(MOST_NAMES).max(1);
    let mut host = None;
    for (place, (device, ns)) in found.devices.iter().zip(&skews).enumerate() {
        let left = frame.left + wide * place as f64;
        if host.is_some_and(|host| host != &device.host) {
            let (top, bottom) = (frame.top, frame.bottom);
            draw!(picture, "<path class=\"frame\" stroke-dasharray=\"3 3\" d=\"M{left:.1} {top}V{bottom}\"/>\n");
        }
        host = Some(&device.host);
        let on = if device.host.is_empty() { "" } else { " on " };
        let skew = format!("device {}{on}{}: {}", device.ordinal, device.host, signed_ns(*ns, ""));
        let label = format!("{skew}, median of {}", alignment.collectives);
        lollipop(picture, &label, (left + wide / 2.0, wide), [y(0.0), y(*ns)]);
        if place % each == 0 {
            let (x, below) = (left + wide / 2.0, frame.bottom + 19.0);
            draw!(picture, "<text x=\"{x:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>\n", device.ordinal);
        }
    }
}

/// Draws a circle on a line from zero, in a column of this width.
fn lollipop(picture: &mut Picture, label: &str, (x, wide): (f64, f64), [zero, y]: [f64; 2]) {
    let (line, radius) = ((wide / 3.0).min(3.0), (wide / 2.0).min(5.0));
    draw!(picture, "<g class=\"k0\"><title>{}</title>", escaped(label));
    draw!(picture, "<path stroke-width=\"{line:.1}\" d=\"M{x:.1} {zero:.1}V{y:.1}\"/>");
    draw!(picture, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/></g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (farthest, step) in [(5.0, 1.0), (5.1, 2.0), (11.0, 5.0), (26.0, 10.0), (400_000.0, 100_000.0)] {
            assert!((step_to(farthest) / step - 1.0).abs() < 1e-9, "{farthest}: {}", step_to(farthest));
        }
        assert!(step_to(0.0) > 0.0);
        assert_eq!([-1500.0, 0.0, 400_000.0, -2000.0].map(label), ["−1.5 µs", "0", "400 µs", "−2 µs"]);
    }
}
