//! A call's work, done in the times of its baseline and its best config, and its share of the device's roof.

use super::{CandidateResult, ConfigTime, OperationResult};
use crate::analysis::Work;
use crate::hlo::Cost;
use crate::peaks::Peaks;

/// Writes what is known about the programs of a call's baseline and best config into its result.
///
/// Both times are compared with the same work, that of the program that does less: a config earns no credit for wasted
/// work, and the two shares of the roof differ by the speed-up.
pub(super) fn fill_work(operation: &mut OperationResult, peaks: Option<&Peaks>) {
    let OperationResult { baseline, best, candidates, .. } = operation;
    let of = |time: &ConfigTime| candidates.iter().find(|candidate| candidate.config == time.config);
    let known = |candidate: &CandidateResult| candidate.work.clone().filter(Cost::is_known);
    let costs = [Some(&*baseline), best.as_ref()].map(|time| of(time?).and_then(known));
    let cost = match costs {
        [Some(one), Some(other)] if has_less(&other, &one, peaks) => Some(other),
        [one, other] => one.or(other),
    };
    for time in [Some(baseline), best.as_mut()].into_iter().flatten() {
        time.temporary_bytes = candidates
            .iter()
            .find(|candidate| candidate.config == time.config)
            .and_then(|candidate| candidate.temporary_bytes);
        let ns = time.median_ns.filter(|ns| *ns > 0.0);
        time.work = cost.as_ref().zip(ns).map(|(cost, ns)| Work::of(cost, 1, ns, peaks));
    }
}

/// Whether one program does less work than another: by the least time on the device, or by bytes if the device is
/// unknown.
fn has_less(one: &Cost, other: &Cost, peaks: Option<&Peaks>) -> bool {
    let least = |cost: &Cost| {
        let roof = Work::of(cost, 1, 1.0, peaks).roofline;
        roof.map_or(cost.bytes, |roof| roof.least_ns)
    };
    least(one) < least(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::analysis::Bound;

    /// By hand: a device of 100 FLOP/s for matrices and 50 bytes/s.
    #[test]
    fn both_times_are_held_against_the_least_work() {
        let peaks: Peaks = serde_json::from_value(json!({"name": "own", "kinds": [], "bytes_per_second": 50,
            "matrix": {"f32": 100}, "vector": {}, "sources": []}))
        .unwrap();
        let candidate = |block: u64| {
            json!({"config": {"block": block}, "status": "not-measured", "rounds": 0, "tied_with_best": false,
                "temporary_bytes": 64 * block})
        };
        let mut operation: OperationResult = serde_json::from_value(json!({
            "op_id": "op@v1", "call_key": "k", "direction": "forward", "evidence": "exact", "occurrences": 1, "how": "",
            "status": "tuned", "reason": "", "rounds_measured": 6, "rounds_kept": 0,
            "baseline": {"config": {"block": 1}, "median_ns": 40e9},
            "best": {"config": {"block": 2}, "median_ns": 20e9},
            "candidates": [candidate(1), candidate(2)]
        }))
        .unwrap();
        let work = |flops: f64, bytes: f64, unknown: f64| -> Option<Cost> {
            let flops = json!([{"unit": "matrix", "dtype": "f32", "count": flops}]);
            serde_json::from_value(json!({"flops": flops, "bytes": bytes, "unknown": unknown})).ok()
        };
        let mut shares = |costs: [Option<Cost>; 2], peaks: Option<&Peaks>| {
            for (candidate, cost) in operation.candidates.iter_mut().zip(costs) {
                candidate.work = cost;
            }
            fill_work(&mut operation, peaks);
            let best = operation.best.clone().unwrap();
            assert_eq!((operation.baseline.temporary_bytes, best.temporary_bytes), (Some(64), Some(128)));
            [operation.baseline.work.clone(), best.work]
        };
        // the winner pads: 1600 FLOPs where 1000 are enough
        let [baseline, best] =
            shares([work(1000.0, 100.0, 0.0), work(1600.0, 100.0, 0.0)], Some(&peaks)).map(Option::unwrap);
        assert_eq!((baseline.flops_per_second(), best.flops_per_second()), (25.0, 50.0));
        let [baseline, best] = [baseline, best].map(|work| work.roofline.unwrap());
        assert_eq!((baseline.share, best.share, best.bound), (0.25, 0.5, Bound::Compute));
        // if a kernel declares no cost, the other program's work is used
        let [_, best] = shares([work(0.0, 500.0, 0.0), work(0.0, 1.0, 1.0)], Some(&peaks)).map(Option::unwrap);
        assert_eq!(best.roofline.map(|roof| (roof.share, roof.bound)), Some((0.5, Bound::Memory)));
        // without peaks there are rates
        let [baseline, _] = shares([work(1000.0, 200.0, 0.0), work(1000.0, 100.0, 0.0)], None).map(Option::unwrap);
        assert_eq!((baseline.roofline, baseline.bytes_per_second()), (None, 2.5));
        assert_eq!(shares([None, work(1.0, 1.0, 1.0)], Some(&peaks)), [None, None]);
    }
}
