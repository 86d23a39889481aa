//! Detects another CUPTI subscriber: CUPTI allows one per process, and XLA's profiler then sees no kernel.
//!
//! ```
//! use autotune_lowered_timer::timer::subscriber::named;
//!
//! assert!(named("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED").is_some());
//! assert_eq!(named("out of memory"), None);
//! ```

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::printable::printable;

/// Variables that a tool sets for the processes that it starts, and the tool. The more specific ones come first: most
/// tools are also injected by `CUDA_INJECTION64_PATH`.
const MARKS: [(&str, &str); 4] = [
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_COMPUTE_PROFILER_", "Nsight Compute"),
    ("NV_NSIGHT_INJECTION", "Nsight Compute"),
    ("NV_SANITIZER_INJECTION", "Compute Sanitizer"),
];
const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// The other subscriber, if an error's message mentions one.
pub fn named(message: &str) -> Option<String> {
    named_in(message, from_environment)
}

/// The other subscriber, judging by the environment of this process, which workers inherit. cuda-gdb leaves no trace
/// there.
pub fn from_environment() -> Option<String> {
    of_environment(std::env::vars_os())
}

fn named_in(message: &str, environment: impl FnOnce() -> Option<String>) -> Option<String> {
    let message = message.to_ascii_lowercase();
    let speaks_of_it = message.contains("multiple_subscribers")
        || message.contains("cupti")
            && ["multiple subscribers", "already subscribed"].iter().any(|one| message.contains(one));
    let unknown =
        || "another CUPTI subscriber (Nsight Systems, Nsight Compute, Compute Sanitizer, cuda-gdb, …)".to_owned();
    speaks_of_it.then(|| environment().unwrap_or_else(unknown))
}

fn of_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Option<String> {
    let set: Vec<(OsString, OsString)> = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let is_set = |mark: &str| set.iter().any(|(name, _)| name.as_encoded_bytes().starts_with(mark.as_bytes()));
    if let Some((_, tool)) = MARKS.iter().find(|(mark, _)| is_set(mark)) {
        return Some((*tool).to_owned());
    }
    let (_, library) = set.iter().find(|(name, _)| name == INJECTION)?;
    let file = Path::new(library).file_name().unwrap_or(OsStr::new(library));
    Some(format!("the library `{}` of {INJECTION}", printable(&file.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        of_environment(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn tools_are_recognised_by_what_they_set() {
        let injected = (INJECTION, "/opt/nvidia/libToolsInjection64.so");
        for (name, tool) in [
            ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
            ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"),
            ("NV_NSIGHT_INJECTION_PORT_BASE", "Nsight Compute"),
            ("NV_SANITIZER_INJECTION_PORT_BASE", "Compute Sanitizer"),
        ] {
            assert_eq!(of(&[("PATH", "/bin"), injected, (name, "49152")]).as_deref(), Some(tool));
            assert_eq!(of(&[(name, "")]), None, "an empty variable says nothing");
        }
        assert_eq!(of(&[injected]).as_deref(), Some("the library `libToolsInjection64.so` of CUDA_INJECTION64_PATH"));
        assert_eq!(of(&[("PATH", "/bin"), ("MY_NSYS_PROFILING_SESSION_ID", "1")]), None);
    }

    #[test]
    fn only_messages_that_speak_of_subscribers_name_one() {
        let refused = "CUPTI call cuptiSubscribe failed: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
        assert_eq!(named_in(refused, || Some("Nsight Systems".into())).as_deref(), Some("Nsight Systems"));
        assert!(named_in(refused, || None).unwrap().starts_with("another CUPTI subscriber"));
        assert!(named_in("CUPTI has already subscribed in this process", || None).is_some());
        for other in ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "the queue has multiple subscribers", ""] {
            assert_eq!(named_in(other, || Some("Nsight Systems".into())), None, "{other}");
        }
    }
}
