//! The canvas of a plot: its title, frames, grids and legends.

use std::fmt::{self, Write as _};

use maud::html;

use crate::printable::printable;

use super::axis::LogAxis;

/// An SVG under construction.
pub(super) struct Picture {
    svg: String,
    width: f64,
}

/// The position of a panel's axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PanelFrame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl PanelFrame {
    /// Returns the coordinate of a position on the horizontal axis.
    pub(super) fn x(&self, along: f64) -> f64 {
        self.left + (self.right - self.left) * along
    }

    /// Returns the same on the vertical axis, which begins below.
    pub(super) fn y(&self, along: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * along
    }
}

/// How things of one kind are marked, by class and shape, so that they can be distinguished without colour.
pub(super) type MarkStyle = (&'static str, &'static str);

/// Marks, in order of use.
pub(super) const STYLES: [MarkStyle; 8] = [
    ("k0", "M-5-5h10v10h-10z"),
    ("k1", "M0-6L6 5H-6z"),
    ("k2", "M0-7L7 0L0 7L-7 0z"),
    ("k3", "M0 6L6-5H-6z"),
    ("k4", "M-6-2h4v-4h4v4h4v4h-4v4h-4v-4h-4z"),
    ("k5", "M-6-3h12v6h-12z"),
    ("k6", "M-6 0L0-6L0 6z"),
    ("k7", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
];

/// The colours of the marks on light and on dark paper (after Okabe and Ito).
const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#4fa9e0"),
    ("#d55e00", "#ff8a3d"),
    ("#009e73", "#2fc79a"),
    ("#c0619b", "#e39cc6"),
    ("#a37e00", "#d9b53a"),
    ("#3d9fd6", "#9ad6f7"),
    ("#a05a2c", "#cd8e60"),
    ("#757575", "#ababab"),
];

/// Adds markup to a picture, formatted as by `format!`.
macro_rules! draw {
    ($picture:expr, $($markup:tt)+) => { $picture.add(format_args!($($markup)+)) };
}
pub(super) use draw;

/// Escapes text for an element or a quoted attribute; XML forbids two characters that HTML allows.
pub(super) fn escaped(text: &str) -> String {
    html! { (printable(text).replace(['\u{fffe}', '\u{ffff}'], " ")) }.into_string()
}

impl Picture {
    /// Makes a picture of this size with its title.
    pub(super) fn new(title: &str, (width, height): (f64, f64)) -> Self {
        let title = escaped(title);
        let rules = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            let rule = |(place, colours)| format!(".k{place}{{fill:{0};stroke:{0}}}", of(colours));
            COLOURS.iter().enumerate().map(rule).collect::<String>()
        };
        let (light, dark) = (rules(|colours| colours.0), rules(|colours| colours.1));
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <title>{title}</title>\n\
             <style>.paper{{fill:#fff}}text{{fill:#222}}.soft{{fill:#555}}.grid{{stroke:#ddd;fill:none}}\
             .frame{{stroke:#888;fill:none}}{light}\
             @media(prefers-color-scheme:dark){{.paper{{fill:#16181c}}text{{fill:#e4e4e4}}.soft{{fill:#a5abb3}}\
             .grid{{stroke:#33373d}}{dark}}}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text x=\"24\" y=\"30\" font-size=\"17\">{title}</text>\n"
        );
        Self { svg, width }
    }

    pub(super) fn add(&mut self, line: fmt::Arguments<'_>) {
        // writing into a String does not fail
        let _ = self.svg.write_fmt(line);
    }

    /// Returns the whole file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.svg.push_str("</svg>\n");
        self.svg.into_bytes()
    }

    /// Draws the legend, in rows from `top` on, and returns where the last one ends.
    pub(super) fn legend<'a>(&mut self, entries: impl IntoIterator<Item = (MarkStyle, &'a str)>, top: f64) -> f64 {
        let (mut x, mut y) = (24.0, top);
        for ((class, mark), name) in entries {
            let wide = 34.0 + text_width(name);
            if x + wide > self.width - 12.0 && x > 24.0 {
                (x, y) = (24.0, y + 22.0);
            }
            draw!(self, "<path class=\"{class}\" transform=\"translate({:.0} {y:.0})\" d=\"{mark}\"/>", x + 8.0);
            draw!(self, "<text x=\"{:.0}\" y=\"{:.0}\">{}</text>\n", x + 20.0, y + 4.5, escaped(name));
            x += wide;
        }
        y + 12.0
    }

    /// Draws a frame with its heading and the names of its axes.
    pub(super) fn frame(&mut self, frame: &PanelFrame, heading: &str, x_name: &str, y_name: &str) {
        let PanelFrame { left, top, right, bottom } = *frame;
        draw!(self, "<path class=\"frame\" d=\"M{left} {top}V{bottom}H{right}\"/>\n");
        if !heading.is_empty() {
            draw!(self, "<text x=\"{left}\" y=\"{}\" font-size=\"14\">{}</text>\n", top - 12.0, escaped(heading));
        }
        let (middle, half) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let below = bottom + 42.0;
        draw!(
            self,
            "<text class=\"soft\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{}</text>\n",
            escaped(x_name)
        );
        draw!(
            self,
            "<text class=\"soft\" transform=\"translate({} {half}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            left - 62.0,
            escaped(y_name)
        );
    }

    /// Draws lines and numbers of the horizontal axis.
    pub(super) fn columns(&mut self, frame: &PanelFrame, axis: &LogAxis, label: fn((u8, i32)) -> String) {
        for (along, tick) in axis.ticks() {
            let (x, text) = (frame.x(along), tick.map_or_else(|| "0".to_owned(), label));
            draw!(self, "<path class=\"grid\" d=\"M{x:.1} {}V{}\"/>", frame.top, frame.bottom);
            draw!(self, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\n", frame.bottom + 19.0);
        }
    }

    /// Draws lines and numbers of the vertical axis.
    pub(super) fn lines(&mut self, frame: &PanelFrame, axis: &LogAxis, label: fn((u8, i32)) -> String) {
        for (along, tick) in axis.ticks() {
            self.line(frame, frame.y(along), &tick.map_or_else(|| "0".to_owned(), label));
        }
    }

    /// Draws a line across with its number.
    pub(super) fn line(&mut self, frame: &PanelFrame, y: f64, text: &str) {
        let (left, base) = (frame.left - 8.0, y + 4.5);
        draw!(self, "<path class=\"grid\" d=\"M{} {y:.1}H{}\"/>", frame.left, frame.right);
        draw!(self, "<text x=\"{left}\" y=\"{base:.1}\" text-anchor=\"end\">{text}</text>\n");
    }
}

/// Returns the approximate width of a text: no font is available, and only line breaks depend on it.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.4
}
