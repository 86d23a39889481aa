//! Bus bandwidth against message size as an SVG that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::analysis::collectives::{Bandwidth, CollectiveMetrics, Kind, SizeRow};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 60.0;

/// A kind's colour and mark: told apart without the colour too (after Okabe and Ito).
fn style(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::AllGather => ("#0072b2", "M-5-5h10v10h-10z"),
        Kind::AllReduce => ("#d55e00", "M0-6L6 5H-6z"),
        Kind::AllToAll => ("#009e73", "M0-7L7 0L0 7L-7 0z"),
        Kind::ReduceScatter => ("#cc79a7", "M0 6L6-5H-6z"),
        Kind::CollectivePermute => ("#b08900", "M-6-2h4v-4h4v4h4v4h-4v4h-4v-4h-4z"),
        Kind::CollectiveBroadcast => ("#56b4e9", "M-6-3h12v6h-12z"),
        Kind::DeviceToHost => ("#7a7a7a", "M-3-6h6v12h-6z"),
        Kind::HostToDevice => ("#a05a2c", "M-6 0L0-6L0 6z"),
    }
}

/// Writes the plot: a mark at each mean, a line from the lowest to the highest instance. `false` where there is nothing to
/// plot, and nothing is written.
pub fn write_bandwidth_plot(out: &mut dyn Write, metrics: &CollectiveMetrics) -> io::Result<bool> {
    let point =
        |row: &SizeRow| Some((row.kind, row.message_bytes.filter(|&bytes| bytes > 0)?, row.figures.bus_gb_per_s?));
    let points: Vec<(Kind, u64, Bandwidth)> = metrics.sizes.iter().filter_map(point).collect();
    let Some(scales) = Scales::new(&points) else { return Ok(false) };
    out.write_all(draw(&points, &scales).as_bytes())?;
    Ok(true)
}

/// Decades that hold all points.
struct Scales {
    x: (i32, i32),
    y: (i32, i32),
}

impl Scales {
    fn new(points: &[(Kind, u64, Bandwidth)]) -> Option<Self> {
        let decades = |values: &mut dyn Iterator<Item = f64>| {
            let logs = values.filter(|value| *value > 0.0).map(f64::log10);
            let (low, high) =
                logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
            let (low, high) = (low.floor() as i32, high.ceil() as i32);
            if low <= high { Some((low, high.max(low + 1))) } else { None }
        };
        let x = decades(&mut points.iter().map(|(_, bytes, _)| *bytes as f64))?;
        let y = decades(&mut points.iter().flat_map(|(_, _, bus)| [bus.low, bus.high]))?;
        Some(Self { x, y })
    }

    fn x(&self, bytes: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * along(self.x, bytes)
    }

    fn y(&self, bandwidth: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * along(self.y, bandwidth)
    }
}

/// Where a value lies between the ends of its decades.
fn along((low, high): (i32, i32), value: f64) -> f64 {
    (value.log10() - f64::from(low)) / f64::from(high - low)
}

fn draw(points: &[(Kind, u64, Bandwidth)], scales: &Scales) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>Bus bandwidth by message size</title>\n\
         <style>.paper{{fill:#fff}}text{{fill:#222}}.grid{{stroke:#ddd}}.frame{{stroke:#888;fill:none}}\
         @media(prefers-color-scheme:dark){{.paper{{fill:#16181c}}text{{fill:#e4e4e4}}.grid{{stroke:#33373d}}}}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"16\">Bus bandwidth by message size</text>\n"
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut add = |line: std::fmt::Arguments<'_>| {
        // writing into a String does not fail
        let _ = svg.write_fmt(line);
    };
    for decade in scales.x.0..=scales.x.1 {
        let (x, label) = (scales.x(10_f64.powi(decade)), size_label(decade));
        add(format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\n"));
        add(format_args!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n", bottom + 20.0));
    }
    for decade in scales.y.0..=scales.y.1 {
        let y = scales.y(10_f64.powi(decade));
        let label = if decade < 0 {
            format!("{:.*}", decade.unsigned_abs() as usize, 10_f64.powi(decade))
        } else {
            format!("{:.0}", 10_f64.powi(decade))
        };
        add(format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\n"));
        add(format_args!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n", LEFT - 8.0, y + 4.0));
    }
    add(format_args!("<path class=\"frame\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n"));
    let middle = (LEFT + right) / 2.0;
    add(format_args!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">message size</text>\n", HEIGHT - 16.0));
    let height = (TOP + bottom) / 2.0;
    add(format_args!(
        "<text transform=\"translate(18 {height}) rotate(-90)\" text-anchor=\"middle\">bus bandwidth, GB/s</text>\n"
    ));
    let mut legend: BTreeMap<Kind, ()> = BTreeMap::new();
    for (kind, bytes, bus) in points {
        let (colour, mark) = style(*kind);
        let (x, y) = (scales.x(*bytes as f64), scales.y(bus.mean));
        let (low, high) = (scales.y(bus.low.max(f64::MIN_POSITIVE)).min(bottom), scales.y(bus.high));
        let said = format!("{kind}, {bytes} bytes: {:.4} GB/s, from {:.4} to {:.4}", bus.mean, bus.low, bus.high);
        add(format_args!("<g fill=\"{colour}\" stroke=\"{colour}\"><title>{said}</title>"));
        add(format_args!("<path d=\"M{x:.1} {low:.1}V{high:.1}\"/>"));
        add(format_args!("<path transform=\"translate({x:.1} {y:.1})\" d=\"{mark}\"/></g>\n"));
        legend.insert(*kind, ());
    }
    for (row, kind) in legend.keys().enumerate() {
        let (colour, mark) = style(*kind);
        let (x, y) = (right + 24.0, TOP + 14.0 + 24.0 * row as f64);
        add(format_args!("<path fill=\"{colour}\" transform=\"translate({x} {y})\" d=\"{mark}\"/>"));
        add(format_args!("<text x=\"{}\" y=\"{}\">{kind}</text>\n", x + 14.0, y + 4.0));
    }
    svg.push_str("</svg>\n");
    svg
}

fn size_label(decade: i32) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let place = usize::try_from(decade.div_euclid(3)).unwrap_or(0);
    format!("{} {}", 10_i64.pow(decade.rem_euclid(3).unsigned_abs()), units.get(place).unwrap_or(&""))
}
