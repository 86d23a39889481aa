//! The fresh processes that measured a config, each as a dot.

use maud::{Markup, html};

use crate::race::Confirmation;
use crate::stats::Interval;

use super::axis::RatioAxis;
use super::strip::SampleStrip;

/// Draws the ratio of each process, with their mean and its interval.
pub(super) fn processes(known: &Confirmation, is_confirmed: bool) -> Markup {
    let kind = if is_confirmed { "best" } else { "other" };
    let strip = SampleStrip::of_processes(known, kind);
    let Interval { low, high, .. } = known.verdict.interval;
    // the interval of two processes may span decades, which would leave nothing of the dots
    let near = [low, high].map(|end| end.clamp(known.verdict.ratio / 2.0, known.verdict.ratio * 2.0));
    let axis = RatioAxis::of(known.processes.iter().map(|one| one.ratio).chain(near));
    html! {
        h4 { "Fresh processes" }
        div.processes { (axis.numbers()) (strip.draw(&axis)) }
        @if known.processes.iter().any(|one| one.is_contended) {
            p.fine { "Pale dots: other processes used the cores or the device meanwhile." }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::decision::{DecisionRules, ProcessQuestion, ProcessRatio, ProcessSpread};

    use super::*;

    #[test]
    fn each_process_is_a_dot_and_a_pale_one_where_others_used_the_cores() {
        let ratios = [0.5, 0.48, 0.52].into_iter().zip(0..);
        let mut processes: Vec<ProcessRatio> =
            ratios.map(|(ratio, epoch)| ProcessRatio::new(epoch, ratio, 0.01)).collect();
        processes[2].is_contended = true;
        let question = ProcessQuestion::gain(&DecisionRules::default());
        let verdict = question.judge(&processes, &[ProcessSpread::QUIET]).unwrap();
        let drawn = super::processes(&Confirmation { verdict, processes }, false).into_string();
        assert!(drawn.contains("3 processes") && drawn.contains("Pale dots"), "{drawn}");
        let dots = |class: &str| {
            let path = drawn.split_once(&format!("class=\"{class}\" d=\"")).and_then(|(_, rest)| rest.split_once('"'));
            path.map_or(0, |(path, _)| path.matches("h0").count())
        };
        assert_eq!((dots("dots"), dots("aside")), (2, 1), "{drawn}");
        assert!(drawn.contains("class=\"interval\"") && drawn.contains("class=\"median\""), "{drawn}");
    }
}
