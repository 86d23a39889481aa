//! The kernels of one program that was run several times: each iteration's sum, span and gaps.

use std::collections::BTreeMap;

use serde::Serialize;

use super::execution::{DeviceTime, Execution};
use super::find::is_control_flow;

/// The times of one program's executions on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurement {
    /// The iterations, in launch order.
    pub iterations: Vec<Iteration>,
    /// The kernels, in the order in which they first started in the first iteration; none if none ran.
    pub kernels: Vec<Kernel>,
}

/// One iteration's times, picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Iteration {
    /// Sum of the kernels' durations: without gaps, and counted twice if two ran at once.
    pub kernels_ps: u64,
    /// From the first start to the last end.
    pub span_ps: u64,
    /// The part of the span during which a kernel ran.
    pub busy_ps: u64,
}

/// All launches of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Launches in each iteration.
    pub count: u64,
    /// Sum of its durations in each iteration, picoseconds.
    pub total_ps: Vec<u64>,
}

/// Iterations of one program that did not run the same kernels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernels differ between iterations: `{kernel}` ran {expected} times in the first, {found} times in iteration \
     {iteration}"
)]
#[non_exhaustive]
pub struct KernelsDiffer {
    /// The first iteration that differs, from one.
    pub iteration: usize,
    /// The kernel.
    pub kernel: String,
    /// How often it ran in the first iteration.
    pub expected: u64,
    /// How often in this one.
    pub found: u64,
}

impl Iteration {
    /// The gaps: time inside the span during which no kernel ran.
    pub fn gaps_ps(&self) -> u64 {
        self.span_ps.saturating_sub(self.busy_ps)
    }
}

impl Measurement {
    /// Adds up the executions of one program. Control flow (`while`, `conditional`, `call`) launches kernels but is not
    /// one.
    ///
    /// # Errors
    /// If an execution ran other kernels than the first one, or one of them more or less often.
    pub fn new<'a>(
        times: &DeviceTime,
        executions: impl IntoIterator<Item = &'a Execution>,
    ) -> Result<Self, KernelsDiffer> {
        let mut measurement = Self::default();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for execution in executions {
            let mut of_execution: Vec<_> = execution
                .operations
                .iter()
                .map(|operation| (times.name(operation.name), operation))
                .filter(|(name, _)| !is_control_flow(name))
                .collect();
            let before = measurement.iterations.len();
            if before == 0 {
                of_execution.sort_by_key(|(_, operation)| operation.start_ps);
                for (name, operation) in &of_execution {
                    places.insert(name, measurement.kernels.len());
                    let (name, count) = ((*name).to_owned(), operation.count);
                    measurement.kernels.push(Kernel { name, count, total_ps: Vec::new() });
                }
            }
            let counts: BTreeMap<&str, u64> =
                of_execution.iter().map(|(name, operation)| (*name, operation.count)).collect();
            measurement.check(before + 1, &counts)?;
            for (name, operation) in &of_execution {
                if let Some(kernel) = places.get(name).and_then(|&place| measurement.kernels.get_mut(place)) {
                    kernel.total_ps.push(operation.total_ps);
                }
            }
            measurement.iterations.push(Iteration {
                kernels_ps: of_execution.iter().map(|(_, operation)| operation.total_ps).sum(),
                span_ps: execution.span_ps,
                busy_ps: execution.kernels_busy_ps,
            });
        }
        Ok(measurement)
    }

    fn check(&self, iteration: usize, counts: &BTreeMap<&str, u64>) -> Result<(), KernelsDiffer> {
        let differ = |kernel: &str, expected, found| {
            Err(KernelsDiffer { iteration, kernel: kernel.to_owned(), expected, found })
        };
        for kernel in &self.kernels {
            match counts.get(kernel.name.as_str()).copied().unwrap_or(0) {
                found if found == kernel.count => {}
                found => return differ(&kernel.name, kernel.count, found),
            }
        }
        // every kernel of the first one occurs as often: another name is one too many
        let known = |name: &str| self.kernels.iter().any(|kernel| kernel.name == name);
        match counts.iter().find(|(name, _)| counts.len() > self.kernels.len() && !known(name)) {
            Some((name, &found)) => differ(name, 0, found),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{XSpace, executions};
    use serde_json::Value;
    use std::path::Path;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/xplane")
    }

    fn captured() -> (DeviceTime, Value) {
        let oracle = std::fs::read_to_string(folder().join("autotune6x5.oracle.json")).unwrap();
        let space = XSpace::open(&folder().join("autotune6x5.xplane.pb.gz")).unwrap();
        (executions(&space), serde_json::from_str(&oracle).unwrap())
    }

    fn of_module<'t>(times: &'t DeviceTime, module: &'t str) -> impl Iterator<Item = &'t Execution> {
        times.executions.iter().filter(move |execution| times.name(execution.module) == module)
    }

    /// A real trace of six programs with loops, run five times each; the sums are those of an independent program.
    #[test]
    fn sums_spans_and_gaps_are_the_oracles() {
        let (times, oracle) = captured();
        let busy = std::fs::read_to_string(folder().join("autotune6x5.kernels.json")).unwrap();
        let busy: Value = serde_json::from_str(&busy).unwrap();
        for program in 0..6 {
            let module = format!("jit_autotune_fn_{program}");
            let measurement = Measurement::new(&times, of_module(&times, &module)).unwrap();
            let mut expected: Vec<&Value> =
                oracle["modules"].as_array().unwrap().iter().filter(|one| one["hlo_module"] == *module).collect();
            expected.sort_by_key(|one| one["start_ps"].as_i64());
            assert_eq!((measurement.iterations.len(), expected.len()), (5, 5));
            for (place, (iteration, expected)) in measurement.iterations.iter().zip(&expected).enumerate() {
                let ps = |name: &str| expected[name].as_u64().unwrap();
                let sums = expected["ops_sum_ps"].as_object().unwrap();
                let kernels = sums.iter().filter(|(name, _)| !name.starts_with("while"));
                let kernels: BTreeMap<&str, u64> =
                    kernels.map(|(name, sum)| (name.as_str(), sum.as_u64().unwrap())).collect();
                assert_eq!(iteration.kernels_ps, kernels.values().sum::<u64>(), "{module}");
                let busy_ps = busy["kernels_busy_ps"][expected["run_id"].to_string()].as_u64().unwrap();
                assert!(busy_ps < ps("busy_union_ps"), "a loop covers the gaps in it");
                assert_eq!((iteration.span_ps, iteration.busy_ps), (ps("span_ps"), busy_ps), "{module}");
                assert_eq!(iteration.gaps_ps(), ps("span_ps") - busy_ps);
                let found: BTreeMap<&str, u64> =
                    measurement.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.total_ps[place])).collect();
                assert_eq!(found, kernels, "{module}");
            }
        }
    }

    #[test]
    fn kernels_come_in_the_order_of_their_first_start() {
        let (times, _) = captured();
        let execution = of_module(&times, "jit_autotune_fn_3").next().unwrap();
        let measurement = Measurement::new(&times, [execution]).unwrap();
        let starts: Vec<i64> = measurement
            .kernels
            .iter()
            .map(|kernel| execution.operations.iter().find(|one| times.name(one.name) == kernel.name).unwrap().start_ps)
            .collect();
        assert!(starts.len() > 3 && starts.is_sorted(), "{starts:?}");
        assert_eq!(measurement.kernels.iter().map(|kernel| kernel.count).sum::<u64>() + 1, execution.events);
    }

    #[test]
    fn other_kernels_or_other_counts_are_refused() {
        let (times, _) = captured();
        let same: Vec<Execution> = of_module(&times, "jit_autotune_fn_1").take(3).cloned().collect();
        let lost = |change: &dyn Fn(&mut Execution)| {
            let mut executions = same.clone();
            change(&mut executions[1]);
            Measurement::new(&times, &executions).unwrap_err()
        };
        let place = same[1].operations.iter().position(|one| times.name(one.name) == "ynn_fusion").unwrap();
        let count = same[1].operations[place].count;
        let fewer = lost(&|execution| execution.operations[place].count -= 1);
        let expected =
            KernelsDiffer { iteration: 2, kernel: "ynn_fusion".to_owned(), expected: count, found: count - 1 };
        assert_eq!(fewer, expected);
        assert_eq!(lost(&|execution| _ = execution.operations.remove(place)).found, 0);
        let sine = Execution { operations: same[0].operations[place..=place].to_vec(), ..same[0].clone() };
        let more = Measurement::new(&times, [&sine, &same[1]]).unwrap_err();
        assert_eq!((more.iteration, more.expected), (2, if more.kernel == "ynn_fusion" { count } else { 0 }));
    }

    #[test]
    fn executions_without_kernels_are_measured_all_the_same() {
        let (times, _) = captured();
        let mut idle = times.executions[0].clone();
        idle.operations.clear();
        let measurement = Measurement::new(&times, [&idle, &idle]).unwrap();
        assert!(measurement.kernels.is_empty());
        assert_eq!((measurement.iterations.len(), measurement.iterations[1].kernels_ps), (2, 0));
        assert_eq!(Measurement::new(&times, []).unwrap(), Measurement::default());
    }
}
