//! The fresh processes that measured a config, each as a dot.

use maud::{Markup, html};

use crate::counted::counted;
use crate::decision::ProcessRatio;
use crate::race::Confirmation;

use super::axis::RatioAxis;
use super::strip::SampleStrip;

/// Draws the ratio of each process, with their mean and its interval.
pub(super) fn processes(known: &Confirmation, is_confirmed: bool) -> Markup {
    let kind = if is_confirmed { "best" } else { "other" };
    let Confirmation { verdict, processes } = known;
    let words = counted(processes.len(), "process");
    let strip = SampleStrip::of_processes(processes, (verdict.ratio, verdict.interval), kind, words);
    let axis = RatioAxis::of(strip.extent_of_processes());
    html! {
        h4 { "Fresh processes" }
        div.processes { (axis.numbers()) (strip.draw(&axis)) }
        (contended_note(processes))
    }
}

/// Says what pale dots are, if there are any among these processes.
pub(super) fn contended_note<'a>(processes: impl IntoIterator<Item = &'a ProcessRatio>) -> Markup {
    html! {
        @if processes.into_iter().any(|one| one.is_contended) {
            p.fine { "Pale dots: other processes used the cores or the device meanwhile." }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::decision::{DecisionRules, ProcessQuestion, ProcessSpread};

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
