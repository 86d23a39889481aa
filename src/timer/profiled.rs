//! From a round's profile to the durations of its launches.

use std::path::Path;

use super::model::{Failure, FailureKind, Metric};
use super::protocol::Profiled;
use crate::profile::{DeviceTime, XSpace, executions};

/// Largest profile of one round that is read.
const MAX_PROFILE_BYTES: u64 = 2 << 30;

/// What decides on a platform unless the user says otherwise: on a CPU, whose operations overlap on pool threads, the
/// span; on an accelerator the time at which it was busy.
pub(crate) fn default_metric(platform: &str) -> Metric {
    if platform == "cpu" { Metric::Span } else { Metric::Busy }
}

/// One duration, nanoseconds, for each run of each launch.
///
/// Executions are told apart by their module's name and, among equals, by the order in which they started. A profile
/// that holds more or fewer of them than were launched is refused: which launch is missing cannot be known.
pub(crate) fn read_round(
    profiled: &Profiled,
    launches: &[(usize, u32)],
    metric: Metric,
) -> Result<Vec<Vec<u64>>, Failure> {
    let space = read(&profiled.profile)?;
    durations(&executions(&space), &profiled.module_name, launches, metric)
}

fn read(path: &Path) -> Result<XSpace, Failure> {
    let failure = |reason: String| {
        Failure::new(FailureKind::Protocol, format!("the worker's profile `{}`: {reason}", path.display()))
    };
    let size = std::fs::metadata(path).map_err(|error| failure(error.to_string()))?.len();
    if size > MAX_PROFILE_BYTES {
        return Err(failure(format!("{size} bytes are more than a round's profile may have")));
    }
    let bytes = std::fs::read(path).map_err(|error| failure(error.to_string()))?;
    let _ = std::fs::remove_file(path);
    XSpace::from_bytes(bytes).map_err(|error| failure(error.to_string()))
}

fn durations(
    times: &DeviceTime,
    module_name: &str,
    launches: &[(usize, u32)],
    metric: Metric,
) -> Result<Vec<Vec<u64>>, Failure> {
    let of_launch = |&(candidate, runs): &(usize, u32)| {
        let name = module_name.replace("{candidate}", &candidate.to_string());
        let mut found: Vec<_> = times.of_module(&name).collect();
        found.sort_by_key(|execution| execution.start_ps);
        if found.len() != runs as usize {
            let findings: Vec<String> = times.findings.iter().map(ToString::to_string).collect();
            let why = if findings.is_empty() { String::new() } else { format!(" ({})", findings.join("; ")) };
            let message =
                format!("the profile holds {} executions of `{name}`, {runs} were launched{why}", found.len());
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let to_ns = |ps: u64| ps.saturating_add(500) / 1000;
        let ps =
            found.iter().map(|execution| if metric == Metric::Busy { execution.busy_ps } else { execution.span_ps });
        Ok(ps.map(to_ns).collect())
    };
    launches.iter().map(of_launch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// A real trace of six functions run five times each, and what an independent program computed for it.
    #[test]
    fn durations_are_the_oracles_in_launch_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane");
        let times = executions(&XSpace::open(&folder.join("autotune6x5.xplane.pb.gz")).unwrap());
        let oracle = std::fs::read_to_string(folder.join("autotune6x5.oracle.json")).unwrap();
        let oracle: Value = serde_json::from_str(&oracle).unwrap();
        let mut expected: BTreeMap<&str, Vec<(i64, [u64; 2])>> = BTreeMap::new();
        for module in oracle["modules"].as_array().unwrap() {
            let ns = |name: &str| (module[name].as_u64().unwrap() + 500) / 1000;
            let times = (module["start_ps"].as_i64().unwrap(), [ns("span_ps"), ns("busy_union_ps")]);
            expected.entry(module["hlo_module"].as_str().unwrap()).or_default().push(times);
        }
        let launches: Vec<(usize, u32)> = [3, 0, 5, 1, 4, 2].map(|candidate| (candidate, 5)).to_vec();
        for (metric, at) in [(Metric::Span, 0), (Metric::Busy, 1)] {
            let found = durations(&times, "jit_autotune_fn_{candidate}", &launches, metric).unwrap();
            for ((candidate, _), found) in launches.iter().zip(found) {
                let expected = expected.get_mut(format!("jit_autotune_fn_{candidate}").as_str()).unwrap();
                expected.sort_unstable();
                assert_eq!(found, expected.iter().map(|(_, ns)| ns[at]).collect::<Vec<_>>(), "{candidate} {metric}");
            }
        }
        let more = durations(&times, "jit_autotune_fn_{candidate}", &[(0, 6)], Metric::Span).unwrap_err();
        assert!(more.message.contains("5 executions") && more.message.contains("6 were launched"), "{more}");
        let absent = durations(&times, "jit_autotune_fn_{candidate}", &[(9, 1)], Metric::Span).unwrap_err();
        assert!(absent.needs_restart() && absent.message.contains("holds 0 executions"), "{absent}");
    }
}
