//! Compares with an earlier result of the same programs: what a new compiler, or a changed program, made of their
//! figures, which of them are refused, and in which a figure grew too much.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::Map;

use super::changes::{ProgramChange, rank, summaries};
use super::figure::GrowthLimits;
use super::result::{CompiledTarget, Regression, StoreComparison};
use crate::config::Config;
use crate::signature::PublicKeys;
use crate::timer::pjrt::{CompileOutcome, CompiledFor, kept_outcomes};

/// The content of a store.
pub struct Baseline {
    outcomes: BTreeMap<CompiledFor, CompileOutcome>,
    note: Option<String>,
}

impl Baseline {
    /// Reads a store. Its refusals count if one of these keys signed them.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn open(store: &Path, trusted: &[PublicKeys]) -> io::Result<Self> {
        let (outcomes, note) = kept_outcomes(store, trusted)?;
        Ok(Self { outcomes, note })
    }

    /// How many refusals are not believed, and why.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Compares the results of a target's programs; `module` is the name of the module itself.
    pub fn compare(&self, target: &CompiledTarget, module: &str, limits: &GrowthLimits) -> StoreComparison {
        let mut comparison = StoreComparison::default();
        let mut compared = BTreeSet::new();
        for (of, now) in programs(target, module) {
            let Some(before) = self.outcomes.get(&of) else {
                comparison.unknown += usize::from(now.is_some());
                continue;
            };
            if let Some(now) = now {
                comparison.compared += 1;
                comparison.changes.extend(ProgramChange::of(&of, before, now));
                comparison.regressions.extend(regressions(&of, before, now, limits));
            }
            compared.insert(of);
        }
        let only_before = |of: &&CompiledFor| of.target == target.target && !compared.contains(*of);
        comparison.only_in_baseline = self.outcomes.keys().filter(only_before).count();
        rank(&mut comparison.changes);
        comparison.regressions.sort_by_key(|regression| matches!(regression, Regression::Growth { .. }));
        comparison.figures = summaries(&comparison.changes);
        comparison
    }
}

/// The programs of a target, and the result of those that were started.
fn programs<'a>(
    target: &'a CompiledTarget,
    module: &str,
) -> impl Iterator<Item = (CompiledFor, Option<&'a CompileOutcome>)> {
    let of = |operation, config| CompiledFor { target: target.target.clone(), operation, config };
    let candidates = target.calls.iter().flat_map(|call| call.candidates.iter().map(move |one| (call.name(), one)));
    let calls = candidates.map(move |(call, one)| (of(call, one.config.clone()), one.outcome.as_ref()));
    let module = target.module.iter().map(move |now| (of(module.to_owned(), Config::new(Map::new())), Some(now)));
    calls.chain(module)
}

fn regressions(
    of: &CompiledFor,
    before: &CompileOutcome,
    now: &CompileOutcome,
    limits: &GrowthLimits,
) -> Vec<Regression> {
    let (operation, config) = (of.operation.clone(), of.config.clone());
    match (before, now) {
        (CompileOutcome::Compiled { .. }, CompileOutcome::Refused { reason, .. }) => {
            vec![Regression::Refused { operation, config, reason: reason.clone() }]
        }
        _ => limits
            .iter()
            .filter_map(|(figure, limit)| {
                let (before, now) = figure.of(before).zip(figure.of(now))?;
                let (operation, config) = (operation.clone(), config.clone());
                (now > before * (1.0 + limit)).then_some(Regression::Growth {
                    figure,
                    operation,
                    config,
                    before,
                    now,
                    limit,
                })
            })
            .collect(),
    }
}
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::compile::CompiledFigure;
    use crate::timer::protocol::KernelUse;

    const TARGET: &str = "cuda:x";

    /// A program that compiles, with these figures besides.
    fn compiled(figures: Value) -> Value {
        let mut outcome = json!({"status": "compiled", "seconds": 1.0, "executable_bytes": 1000, "reused": false});
        outcome.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        outcome
    }

    fn refused() -> Value {
        json!({"status": "refused", "reason": "too much shared memory", "seconds": 1.0, "reused": false})
    }

    /// Compares the outcomes of the candidates of one call.
    fn compare(before: &[(u32, Value)], now: &[(u32, Value)], limits: &GrowthLimits) -> StoreComparison {
        let config = |number: u32| serde_json::from_value::<Config>(json!({"block": number})).unwrap();
        let of =
            |number: u32| CompiledFor { target: TARGET.into(), operation: "op@v1:k".into(), config: config(number) };
        let outcome =
            |(number, outcome): &(u32, Value)| (of(*number), serde_json::from_value(outcome.clone()).unwrap());
        let baseline = Baseline { outcomes: before.iter().map(outcome).collect(), note: None };
        let candidate = |(number, outcome): &(u32, Value)| {
            let mut candidate = outcome.clone();
            candidate["config"] = json!({"block": number});
            candidate
        };
        let target = json!({
            "target": TARGET,
            "device": {"identity": {"platform": "cuda", "device_kind": "X", "hardware": {}},
                       "environment": {"platform_version": "1"}},
            "calls": [{"op_id": "op@v1", "call_key": "k", "direction": "forward", "baseline": {},
                       "candidates": now.iter().map(candidate).collect::<Vec<_>>()}],
        });
        baseline.compare(&serde_json::from_value(target).unwrap(), "module.mlir", limits)
    }

    fn one(before: Value, now: Value, limits: &GrowthLimits) -> StoreComparison {
        compare(&[(1, before)], &[(1, now)], limits)
    }

    fn peak(bytes: u64) -> Value {
        let memory = json!({"argument_bytes": 0, "output_bytes": 0, "temporary_bytes": 0, "peak_bytes": bytes});
        compiled(json!({"memory": memory}))
    }

    #[test]
    fn only_what_is_worse_is_a_regression() {
        let limits = GrowthLimits::default();
        let newly_refused = one(peak(100), refused(), &limits).regressions;
        assert!(matches!(newly_refused.as_slice(), [Regression::Refused { .. }]), "{newly_refused:?}");
        let grown = one(peak(100), peak(111), &limits).regressions;
        let is_growth = |one: &Regression| matches!(one, Regression::Growth { before: 100.0, now: 111.0, .. });
        assert!(grown.len() == 1 && grown.iter().all(is_growth), "{grown:?}");
        let failed = json!({"status": "failed", "reason": "time-out"});
        for (before, now) in [
            (peak(100), peak(110)),
            (peak(100), peak(50)),
            (refused(), refused()),
            (refused(), peak(1)),
            (peak(1), failed),
        ] {
            assert_eq!(one(before.clone(), now.clone(), &limits).regressions, [], "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_new_refusal_comes_before_what_grew() {
        let before = [(1, peak(100)), (2, peak(100))];
        let regressions = compare(&before, &[(1, peak(200)), (2, refused())], &GrowthLimits::default()).regressions;
        assert!(matches!(regressions[..], [Regression::Refused { .. }, Regression::Growth { .. }]), "{regressions:?}");
    }

    #[test]
    fn programs_are_ranked_by_their_largest_ratio_whatever_the_seconds() {
        let bundles = |bundles: u32, vmem: u32, seconds: u32| {
            let schedule = json!({"bundles": bundles, "vmem_bytes": vmem});
            let cost = json!({"flops": 0, "accessed_bytes": 0, "schedule": schedule});
            compiled(json!({"cost": cost, "seconds": seconds}))
        };
        let before = [1, 2, 3, 4].map(|number| (number, bundles(1000, 4000, 1)));
        let now = [(1, (1100, 4000, 1)), (2, (1000, 4000, 90)), (3, (1000, 1000, 1)), (4, (2000, 4000, 1))];
        let now = now.map(|(number, (bundles_now, vmem, seconds))| (number, bundles(bundles_now, vmem, seconds)));
        let comparison = compare(&before, &now, &GrowthLimits::default());
        let ranked = comparison.changes.iter().map(|change| (change.config.to_string(), change.changed_most));
        let expected = [
            (r#"{"block":3}"#, Some(CompiledFigure::Vmem)),
            (r#"{"block":4}"#, Some(CompiledFigure::Bundles)),
            (r#"{"block":1}"#, Some(CompiledFigure::Bundles)),
            (r#"{"block":2}"#, None),
        ];
        assert_eq!(ranked.collect::<Vec<_>>(), expected.map(|(config, most)| (config.to_owned(), most)));
    }

    #[test]
    fn the_mean_of_ratios_is_geometric_and_zero_and_unknown_are_counted_apart() {
        let stack = |bytes: u32| compiled(json!({"kernels": [KernelUse::new("k", 8, 32, bytes.into(), 0)]}));
        let unknown = compiled(json!({"kernels_unknown": "custom calls"}));
        let before = [(1, stack(8)), (2, stack(8)), (3, stack(0)), (4, stack(8)), (5, stack(8)), (6, stack(0))];
        let now = [(1, stack(16)), (2, stack(64)), (3, stack(8)), (4, stack(0)), (5, unknown), (6, stack(0))];
        let comparison = compare(&before, &now, &GrowthLimits::default());
        let of = |figure| comparison.figures.iter().find(|summary| summary.figure == figure).unwrap();
        let stack = of(CompiledFigure::Stack);
        // 2 × 8 × 1, of three programs
        assert!((stack.mean_ratio.unwrap() - 16_f64.cbrt()).abs() < 1e-12, "{stack:?}");
        assert_eq!((stack.programs, stack.min_ratio, stack.max_ratio), (3, Some(1.0), Some(8.0)));
        assert_eq!((stack.from_zero, stack.to_zero, stack.unknown), (1, 1, 1));
        let unknown = comparison.changes.iter().find(|change| change.config.to_string().contains('5')).unwrap();
        let registers = unknown.figure(CompiledFigure::Registers).unwrap();
        assert_eq!((registers.before, registers.now, registers.ratio), (Some(32.0), None, None));
        assert_eq!(unknown.kernels, [], "unknown kernels are not missing");
        // no program here is for a TPU
        assert!(comparison.figures.iter().all(|summary| summary.figure != CompiledFigure::Bundles));
        let notes = comparison.not_judged(&GrowthLimits::default().with(CompiledFigure::Stack, 9.0));
        assert!(notes[1].starts_with("the growth of stack is not judged in 1 program,"), "{notes:?}");
        // what was zero has grown beyond every limit
        let limits = GrowthLimits::default().with(CompiledFigure::Stack, 1e9);
        let regressions = compare(&before, &now, &limits).regressions;
        let text = r#"op@v1:k {"block":3}: stack grew from 0 bytes to 8 bytes; 100000000000.0% is allowed"#;
        assert_eq!(regressions.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    }

    #[test]
    fn kernels_belong_together_by_a_name_that_occurs_once() {
        let kernel = |name: &str, registers| KernelUse::new(name, 8, registers, 0, 0);
        let before =
            [kernel("same", 32), kernel("other", 40), kernel("gone", 8), kernel("twice", 1), kernel("twice", 2)];
        let now = [kernel("new", 9), kernel("other", 80), kernel("same", 32), kernel("twice", 3)];
        let comparison =
            one(compiled(json!({"kernels": before})), compiled(json!({"kernels": now})), &GrowthLimits::default());
        let registers =
            |kernel: &Option<KernelUse>| kernel.as_ref().map(|kernel| (kernel.name.clone(), kernel.registers));
        let changed =
            comparison.changes[0].kernels.iter().map(|kernel| (registers(&kernel.before), registers(&kernel.now)));
        let named = |name: &str, registers| Some((name.to_owned(), registers));
        let expected = [(named("gone", 8), None), (None, named("new", 9)), (named("other", 40), named("other", 80))];
        assert_eq!(changed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn programs_that_only_one_store_has_are_counted() {
        let comparison = compare(
            &[(1, peak(1)), (2, refused()), (3, peak(1))],
            &[(1, peak(1)), (4, peak(1))],
            &GrowthLimits::default(),
        );
        assert_eq!((comparison.compared, comparison.unknown, comparison.only_in_baseline), (1, 1, 2));
    }

    #[test]
    fn an_impossible_figure_of_a_store_is_unknown() {
        let cost = json!({"flops": 0, "accessed_bytes": 0, "schedule": {"bundles": -1.0}});
        let comparison = one(compiled(json!({"cost": cost})), compiled(json!({})), &GrowthLimits::default());
        assert_eq!(comparison.changes[0].figure(CompiledFigure::Bundles), None);
    }
}
