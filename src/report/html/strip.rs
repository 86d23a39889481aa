//! One candidate's samples as a strip: a dot per round, the box of the middle half, the interval and the median.

use maud::{Markup, html};

use crate::counted::counted;
use crate::decision::ProcessRatio;
use crate::stats::{Interval, median, quantile};
use crate::tune::{CandidateResult, PairedSample};

use super::axis::RatioAxis;

/// Height of a strip in its own units, which are the page's pixels.
const HEIGHT: u32 = 34;

/// The ratios of one candidate in the order of their rounds.
pub(super) struct SampleStrip {
    dots: Vec<(f64, bool)>,
    /// The box, if there are enough dots.
    middle_half: Option<(f64, f64)>,
    interval: Option<(f64, f64)>,
    median: Option<f64>,
    /// Ratios between which a difference does not matter.
    band: Option<(f64, f64)>,
    kind: &'static str,
    /// How many dots there are, and of what.
    words: String,
}

impl SampleStrip {
    /// Takes the paired ratios of a candidate. `kind` is the class that it is drawn with.
    pub(super) fn of_candidate(candidate: &CandidateResult, kind: &'static str) -> Self {
        let ratios: Vec<(f64, bool)> =
            candidate.samples.iter().map(|sample| (sample.ratio(), sample.is_counted)).collect();
        let times = candidate.times();
        let interval = times.map(|times| (times.interval.low, times.interval.high));
        Self { interval, median: times.map(|times| times.ratio), ..Self::of(ratios, kind) }
    }

    /// Takes the baseline's own times over their median: the machine's drift, which cancels in pairs.
    pub(super) fn of_baseline(samples: &[PairedSample]) -> Self {
        let of_counted: Vec<f64> = samples.iter().filter(|sample| sample.is_counted).map(|sample| sample.ns).collect();
        let level = median(&of_counted).unwrap_or(f64::NAN);
        let ratios = samples.iter().map(|sample| (sample.ns / level, sample.is_counted)).collect();
        let rounds = counted(samples.len(), "round");
        let words = format!("the baseline's own times over their median, {rounds}");
        Self { median: level.is_finite().then_some(1.0), words, ..Self::of(ratios, "base") }
    }

    /// Takes the ratios of the processes that measured a config, and their mean with its interval.
    pub(super) fn of_processes(
        processes: &[ProcessRatio],
        (mean, interval): (f64, Interval),
        kind: &'static str,
        words: String,
    ) -> Self {
        let ratios = processes.iter().map(|one| (one.ratio, !one.is_contended)).collect();
        let (interval, median) = (Some((interval.low, interval.high)), Some(mean));
        Self { interval, median, middle_half: None, words, ..Self::of(ratios, kind) }
    }

    /// Marks the ratios between which a difference does not matter.
    pub(super) fn band(self, low: f64, high: f64) -> Self {
        Self { band: Some((low, high)), ..self }
    }

    fn of(dots: Vec<(f64, bool)>, kind: &'static str) -> Self {
        let ratios: Vec<f64> = dots.iter().filter(|(_, is_counted)| *is_counted).map(|(ratio, _)| *ratio).collect();
        let quartiles = quantile(&ratios, 0.25).zip(quantile(&ratios, 0.75));
        let middle_half = quartiles.filter(|_| ratios.len() >= 4);
        let words = counted(dots.len(), "paired sample");
        Self { dots, middle_half, interval: None, median: None, band: None, kind, words }
    }

    /// Returns the range that an axis must show.
    pub(super) fn extent(&self) -> impl Iterator<Item = f64> {
        let counted: Vec<f64> = self.dots.iter().filter(|(_, counted)| *counted).map(|(ratio, _)| *ratio).collect();
        // a single disturbed sample must not flatten all others
        let ends = [quantile(&counted, 0.05), quantile(&counted, 0.95), self.median];
        ends.into_iter().flatten()
    }

    /// Returns the range that an axis of processes must show: each of them, and the ends of the interval that are near.
    pub(super) fn extent_of_processes(&self) -> impl Iterator<Item = f64> {
        // the interval of two processes may span decades, which would leave nothing of the dots
        let is_near = |end: &f64| self.median.is_some_and(|mean| (mean / 2.0..=mean * 2.0).contains(end));
        let ends = self.interval.into_iter().flat_map(|(low, high)| [low, high]).filter(is_near);
        self.dots.iter().map(|(ratio, _)| *ratio).chain(ends).chain(self.median)
    }

    /// Counts the samples outside the axis.
    pub(super) fn beyond(&self, axis: &RatioAxis) -> usize {
        self.dots.iter().filter(|(ratio, _)| !axis.holds(*ratio)).count()
    }

    /// Draws the strip as a picture.
    pub(super) fn draw(&self, axis: &RatioAxis) -> Markup {
        let place = |ratio: f64| axis.place(ratio);
        let rect = |(low, high): (f64, f64)| (place(low), place(high) - place(low));
        let classes = [("aside", false, true), ("dots", true, true), ("beyond", true, false), ("beyond", false, false)];
        html! {
            svg class={"strip " (self.kind)} viewBox={"0 0 1000 " (HEIGHT)} preserveAspectRatio="none" role="img"
                aria-label=(self.to_words()) {
                @if let Some((x, width)) = self.band.map(rect) {
                    rect.band x=(format_args!("{x:.1}")) y="0" width=(format_args!("{width:.1}")) height=(HEIGHT) {}
                }
                (axis.lines(HEIGHT))
                @if let Some((x, width)) = self.middle_half.map(rect) {
                    rect.box x=(format_args!("{x:.1}")) y="3" width=(format_args!("{width:.1}")) height="28" {}
                }
                @if let Some((low, high)) = self.interval {
                    path.interval d=(format_args!("M{:.1} 17H{:.1}", place(low), place(high))) {}
                }
                @for (class, counted, inside) in classes {
                    @if let Some(dots) = self.dots(axis, counted, inside) { path class=(class) d=(dots) {} }
                }
                @if let Some(median) = self.median { path.median d=(format_args!("M{:.1} 5v24", place(median))) {} }
            }
        }
    }

    /// Returns dots from top to bottom in the order of the rounds, if there are any. A line of zero length with round
    /// ends is a dot that keeps its shape at any width.
    fn dots(&self, axis: &RatioAxis, counted: bool, inside: bool) -> Option<String> {
        let step = 24.0 / self.dots.len().saturating_sub(1).max(1) as f64;
        let dots = self.dots.iter().enumerate().filter(|(_, (ratio, is_counted))| {
            ratio.is_finite() && *is_counted == counted && axis.holds(*ratio) == inside
        });
        let dot = |(index, (ratio, _)): (usize, &(f64, bool))| {
            format!("M{:.1} {:.1}h0", axis.place(*ratio), 5.0 + step * index as f64)
        };
        Some(dots.map(dot).collect()).filter(|dots: &String| !dots.is_empty())
    }

    fn to_words(&self) -> String {
        let half = self.middle_half.map(|(low, high)| format!(", half of them between {low:.3} and {high:.3}"));
        format!("{}{}", self.words, half.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_a_dot_where_the_axis_has_it() {
        let strip =
            SampleStrip::of(vec![(0.5, true), (2.0, true), (0.5, false), (1e6, true), (f64::NAN, true)], "other");
        let axis = RatioAxis::of([0.5, 2.0]);
        let svg = strip.draw(&axis).into_string();
        // 3 % of a span of two doublings on either side
        let margin = 1000.0 * 0.03 / 1.06;
        assert!(
            svg.contains(&format!(
                r#"<path class="dots" d="M{margin:.1} 5.0h0M{:.1} 11.0h0"></path>"#,
                1000.0 - margin
            ))
        );
        assert!(svg.contains(&format!(r#"<path class="aside" d="M{margin:.1} 17.0h0"></path>"#)), "{svg}");
        assert!(svg.contains(r#"<path class="beyond" d="M1000.0 23.0h0"></path>"#), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn the_baseline_is_drawn_about_its_own_median() {
        let sample = |round, ns| PairedSample { round, epoch: 0, ns, baseline_ns: ns, is_counted: true };
        let strip = SampleStrip::of_baseline(&[sample(0, 10.0), sample(1, 20.0), sample(2, 40.0)]);
        assert_eq!(strip.dots, [(0.5, true), (1.0, true), (2.0, true)]);
        assert_eq!((strip.median, strip.interval), (Some(1.0), None));
        assert_eq!(SampleStrip::of_baseline(&[]).median, None);
    }
}
