//! Tuned calls of a profile: from a label to its candidates.

use maud::{Markup, html};

use crate::analysis::{LabelShare, Summary};
use crate::call::split_op_id;
use crate::report::differences::differences;
use crate::report::figures::{expected_text, format_interval};
use crate::report::grid::dash;
use crate::report::roofline::{temporary_memory, work_line};
use crate::report::{format_bytes, format_ns, format_ratio};
use crate::tune::{AutotuningResult, CandidateResult, CandidateStatus, OperationResult};

use super::table::linked_table;

/// The tuning results of a label's call.
pub(super) struct TunedCall<'a> {
    /// Its place among the labels.
    place: usize,
    operation: &'a OperationResult,
}

/// For each label the result of its call, if there is one. Of several results the first decided one counts. A label of
/// which only the name is left has the result of the only call with that name.
pub(super) fn calls<'a>(summary: &Summary, results: &'a [AutotuningResult]) -> Vec<Option<TunedCall<'a>>> {
    let of = |(place, label): (usize, &LabelShare)| {
        let is_own = |operation: &&OperationResult| match &label.label.call_key {
            Some(key) => operation.call.op_id == label.label.op_id && operation.call.call_key == *key,
            None => split_op_id(&operation.call.op_id).0 == label.label.op_name(),
        };
        let mut found: Vec<&OperationResult> =
            results.iter().flat_map(|result| &result.operations).filter(is_own).collect();
        found.sort_by_key(|operation| !operation.status.is_decided());
        let first = *found.first()?;
        // a name alone may stand for any of several calls
        found.iter().all(|other| other.call == first.call).then_some(TunedCall { place, operation: first })
    };
    summary.labels.iter().enumerate().map(of).collect()
}

impl TunedCall<'_> {
    /// Returns the id of its candidates in the page.
    pub(super) fn id(&self) -> String {
        format!("call-{}", self.place + 1)
    }

    /// Draws its verdict and its candidates, the fastest first.
    pub(super) fn section(&self) -> Markup {
        let operation = self.operation;
        let mut candidates: Vec<&CandidateResult> = operation.candidates.iter().collect();
        let ratio = |candidate: &CandidateResult| candidate.times().map_or(f64::INFINITY, |times| times.ratio);
        candidates.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let rows = candidates.iter().map(|candidate| row(candidate, operation));
        let columns = ["config", ">time", ">of the baseline’s", "interval", ">rounds", ">temporary memory", "outcome"];
        let (id, name) = (self.id(), format!("Candidates of {}", operation.call));
        let speed_up = operation.speed_up.map(|speed_up| format!("{} as fast as the baseline", format_ratio(speed_up)));
        let facts =
            [Some(operation.status.name().to_owned()), speed_up, work_line(operation), temporary_memory(operation)];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        html! {
            @if candidates.is_empty() { h3 id=(id) tabindex="-1" { (name) } }
            (linked_table(&id, &name, &columns, rows, &[]))
            p.fine { (facts.join("; ")) ". " a href="#table-labels" { "Back to the labels" } }
        }
    }
}

fn row(candidate: &CandidateResult, operation: &OperationResult) -> Vec<String> {
    let times = candidate.times();
    let is_baseline = candidate.config == operation.baseline.config;
    let config = match is_baseline {
        true => candidate.config.to_brief(),
        false => differences(&candidate.config, &operation.baseline.config).0,
    };
    let is_best = operation.best.as_ref().is_some_and(|best| best.config == candidate.config);
    let outcome = match (is_best, is_baseline, candidate.status()) {
        (true, true, _) => "baseline: keep it".to_owned(),
        (true, false, _) => "use this".to_owned(),
        (_, true, _) => "baseline".to_owned(),
        (_, _, CandidateStatus::Failed) => dash(candidate.failure(), ToString::to_string),
        (_, _, CandidateStatus::SameProgram) => "same program as another".to_owned(),
        (_, _, CandidateStatus::NotCompiled) => {
            dash(candidate.expected(), |expected| format!("not compiled: {}", expected_text(expected)))
        }
        (_, _, CandidateStatus::NotMeasured) => "not measured".to_owned(),
        (_, _, CandidateStatus::Measured) if candidate.tied_with_best => "tied with the best".to_owned(),
        (_, _, CandidateStatus::Measured) => String::new(),
    };
    vec![
        config,
        dash(times, |times| format_ns(times.median_ns)),
        dash(times, |times| format!("{:.3}", times.ratio)),
        dash(times, |times| format_interval(times.interval, 3)),
        times.map_or(0, |times| times.rounds).to_string(),
        dash(candidate.temporary_bytes, format_bytes),
        outcome,
    ]
}
