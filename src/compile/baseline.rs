//! Compares with an earlier result of the same programs: detects that a new compiler, or a changed program, is refused
//! or needs more memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::result::{CompiledTarget, MEMORY_GROWTH, Regression, StoreComparison};
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
    pub fn compare(&self, target: &CompiledTarget, module: &str) -> StoreComparison {
        let mut comparison = StoreComparison::default();
        let calls = target.calls.iter().flat_map(|call| {
            call.candidates
                .iter()
                .filter_map(|candidate| Some((call.name(), &candidate.config, candidate.outcome.as_ref()?)))
        });
        let empty = Config::new(serde_json::Map::new());
        let module = target.module.iter().map(|outcome| (module.to_owned(), &empty, outcome));
        for (operation, config, now) in calls.chain(module) {
            let of = CompiledFor { target: target.target.clone(), operation, config: config.clone() };
            match self.outcomes.get(&of) {
                Some(before) => {
                    comparison.compared += 1;
                    comparison.regressions.extend(regression(of, before, now));
                }
                None => comparison.unknown += 1,
            }
        }
        comparison
    }
}

fn regression(of: CompiledFor, before: &CompileOutcome, now: &CompileOutcome) -> Option<Regression> {
    let CompiledFor { operation, config, .. } = of;
    let CompileOutcome::Compiled { memory: before, .. } = before else { return None };
    match now {
        CompileOutcome::Refused { reason, .. } => {
            Some(Regression::Refused { operation, config, reason: reason.clone() })
        }
        CompileOutcome::Compiled { memory, .. } => {
            let (before_bytes, now_bytes) = (before.as_ref()?.needed_bytes(), memory.as_ref()?.needed_bytes());
            let grew = now_bytes as f64 > before_bytes as f64 * (1.0 + MEMORY_GROWTH);
            grew.then_some(Regression::Memory { operation, config, before_bytes, now_bytes })
        }
        CompileOutcome::Failed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::protocol::MemoryStats;

    fn compiled(peak_bytes: u64) -> CompileOutcome {
        let memory = Some(MemoryStats { peak_bytes, ..MemoryStats::default() });
        CompileOutcome::Compiled {
            seconds: 1.0,
            executable_bytes: 1,
            memory,
            kernels: Vec::new(),
            kernels_unknown: None,
            cost: None,
            reused: false,
        }
    }

    #[test]
    fn only_what_is_worse_is_a_regression() {
        let of = || CompiledFor {
            target: "cuda:x".into(),
            operation: "op@v1:k".into(),
            config: Config::new(serde_json::Map::new()),
        };
        let refused =
            || CompileOutcome::Refused { reason: "too much shared memory".into(), seconds: 1.0, reused: false };
        let failed = CompileOutcome::Failed { reason: "time-out".into() };
        assert!(matches!(regression(of(), &compiled(100), &refused()), Some(Regression::Refused { .. })));
        let grown = regression(of(), &compiled(100), &compiled(111));
        assert!(matches!(grown, Some(Regression::Memory { before_bytes: 100, now_bytes: 111, .. })), "{grown:?}");
        for (before, now) in [
            (compiled(100), compiled(110)),
            (compiled(100), compiled(50)),
            (refused(), refused()),
            (refused(), compiled(1)),
            (compiled(1), failed),
        ] {
            assert_eq!(regression(of(), &before, &now), None, "{before:?} {now:?}");
        }
    }
}
