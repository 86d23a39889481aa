//! A logarithmic axis of ratios.

use maud::{Markup, html};

use crate::report::log_scale::LogScale;

/// Units of an axis in a picture whose width depends on the window.
pub(super) const WIDTH: f64 = 1000.0;
/// A ratio beyond this, or below its inverse, is drawn at the edge.
const FARTHEST: f64 = 64.0;
/// Minimum span of an axis, so that noise does not fill it.
const LEAST_SPAN: f64 = 1.1;
/// Maximum number of ticks.
const TICKS: usize = 6;

/// The position of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RatioAxis(LogScale);

impl RatioAxis {
    /// Makes an axis that shows these ratios, and 1.
    pub(super) fn of(ratios: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (1.0_f64, 1.0_f64);
        for ratio in ratios.into_iter().filter(|ratio| ratio.is_finite() && *ratio > 0.0) {
            let ratio = ratio.clamp(1.0 / FARTHEST, FARTHEST);
            (low, high) = (low.min(ratio), high.max(ratio));
        }
        let missing = (LEAST_SPAN / (high / low)).max(1.0).sqrt();
        let margin = (high / low).powf(0.03);
        Self(LogScale { low: low / missing / margin, high: high * missing * margin })
    }

    /// Returns units from the left edge; ratios outside the range are at the edge.
    pub(super) fn place(&self, ratio: f64) -> f64 {
        self.0.part(ratio) * WIDTH
    }

    /// Says whether a ratio is on the axis.
    pub(super) fn holds(&self, ratio: f64) -> bool {
        self.0.holds(ratio)
    }

    /// Returns round ratios for ticks, including 1.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let LogScale { low, high } = self.0;
        let inside = |tick: &f64| self.holds(*tick);
        let even = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].into_iter().map(|step: f64| {
            let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
            // far more than are ever drawn
            (first..=last.min(first + 100)).map(|n| n as f64 * step).filter(inside).collect::<Vec<f64>>()
        });
        let doubled = [1, 2, 3].into_iter().map(|step| {
            (-6..=6).filter(|n| n % step == 0).map(|n| 2.0_f64.powi(n)).filter(inside).collect::<Vec<f64>>()
        });
        let is_narrow = high / low < 2.5;
        let (first, second): (Vec<_>, Vec<_>) =
            if is_narrow { (even.collect(), doubled.collect()) } else { (doubled.collect(), even.collect()) };
        let mut all = first.into_iter().chain(second);
        all.find(|ticks| (2..=TICKS).contains(&ticks.len())).unwrap_or_else(|| vec![1.0])
    }

    /// Draws the axis with its numbers, in percentages, so that letters keep their shape at any width.
    pub(super) fn numbers(&self) -> Markup {
        let anchor = |part: f64| match part {
            _ if part < 5.0 => "start",
            _ if part > 95.0 => "end",
            _ => "middle",
        };
        let ticks = self.ticks().into_iter().map(|tick| (tick, self.place(tick) / WIDTH * 100.0));
        html! {
            svg.axis aria-hidden="true" {
                @for (tick, part) in ticks {
                    text x=(format_args!("{part:.1}%")) y="11" text-anchor=(anchor(part)) { (tick_text(tick)) }
                }
            }
        }
    }

    /// Draws lines through a strip of this height: one at each tick, and a stronger one at the baseline.
    pub(super) fn lines(&self, height: u32) -> Markup {
        let line = |tick: f64| format!("M{:.1} 0v{height}", self.place(tick));
        let grid: String = self.ticks().into_iter().filter(|tick| *tick != 1.0).map(line).collect();
        html! { path.grid d=(grid) {} path.one d=(line(1.0)) {} }
    }
}

/// Returns `0.25×`, `1×`, `1.5×`.
fn tick_text(tick: f64) -> String {
    let text = format!("{tick:.4}");
    format!("{}×", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_doubles_are_as_far_from_one() {
        let axis = RatioAxis::of([0.5, 2.0, f64::NAN, f64::INFINITY, -1.0]);
        assert!((axis.place(1.0) - WIDTH / 2.0).abs() < 1e-9);
        assert!((axis.place(0.5) + axis.place(2.0) - WIDTH).abs() < 1e-9);
        assert_eq!((axis.place(1e9), axis.place(1e-9), axis.place(f64::NAN)), (WIDTH, 0.0, 0.0));
        assert_eq!(axis.ticks(), [0.5, 1.0, 2.0]);
        assert!(axis.holds(0.5) && !axis.holds(0.1));
    }

    #[test]
    fn ticks_are_round_and_few() {
        let of =
            |low: f64, high: f64| RatioAxis::of([low, high]).ticks().into_iter().map(tick_text).collect::<Vec<_>>();
        assert_eq!(of(0.2, 1.0), ["0.25×", "0.5×", "1×"]);
        assert_eq!(of(0.98, 1.03), ["0.96×", "0.98×", "1×", "1.02×", "1.04×"]);
        for (low, high) in [(1e-9, 1e9), (1.0, 1.0), (0.9, 1.4), (0.3, 1.0), (0.99, 3.0), (1.0, 40.0)] {
            let ticks = of(low, high);
            assert!((2..=TICKS).contains(&ticks.len()) && ticks.contains(&"1×".to_owned()), "{low} {high}: {ticks:?}");
        }
    }
}
