//! Another profiler that holds the GPU's tracing interface, CUPTI, which serves one subscriber at a time.

use std::ffi::OsString;

/// What CUPTI, and XLA's own lock, say where someone else profiles already.
const MESSAGES: [&str; 5] = [
    "multiple_subscribers",
    "multiple subscribers",
    "multiple callback subscribers",
    "already subscribed",
    "another profiling session active",
];

/// Variables that tools set in the processes which they profile, and the tool.
const VARIABLES: [(&str, &str); 5] = [
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "Nsight Compute"),
    ("NV_NSIGHT_INJECTION_PORT_BASE", "Nsight Compute"),
    ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"),
    ("CUDA_INJECTION64_PATH", "a CUDA injection library"),
];

/// Says, in one line with what to do, that another profiler holds the device, where the message or this process's
/// environment tells so. `message` is what the profiler said, or why its profile was of no use.
pub fn named(message: &str) -> Option<String> {
    named_in(message, |variable| std::env::var_os(variable))
}

fn named_in(message: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let lower = message.to_ascii_lowercase();
    let said = MESSAGES.iter().any(|part| lower.contains(part));
    let tool = VARIABLES
        .iter()
        .find_map(|&(name, tool)| variable(name).filter(|value| !value.is_empty()).map(|_| (name, tool)));
    let holder = match tool {
        Some((name, tool)) => format!("{tool} profiles this process (`{name}` is set)"),
        None if said => {
            "another CUPTI subscriber profiles the device (Nsight Systems, Nsight Compute, DCGM, another profiler)"
                .to_owned()
        }
        None => return None,
    };
    Some(format!("{holder}, and CUPTI serves one at a time: end it to get device time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_by_the_message_or_by_the_environment() {
        let nothing = |_: &str| None;
        for message in [
            "INTERNAL: cuptiSubscribe: error 39: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            "CUPTI: already subscribed",
            "ALREADY_EXISTS: Another profiling session active.",
        ] {
            assert!(named_in(message, nothing).unwrap().contains("another CUPTI subscriber"), "{message}");
        }
        assert_eq!(named_in("the profile holds 0 executions, 4 were launched", nothing), None);
        assert_eq!(named_in("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", nothing), None);
        let nsys = |name: &str| (name == "NSYS_PROFILING_SESSION_ID").then(|| "4711".into());
        let told = named_in("the profile holds 0 executions", nsys).unwrap();
        assert!(
            told.starts_with("Nsight Systems profiles this process (`NSYS_PROFILING_SESSION_ID` is set)"),
            "{told}"
        );
        assert_eq!(named_in("nothing", |_| Some(OsString::new())), None, "an empty variable is none");
    }
}
