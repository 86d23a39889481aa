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
